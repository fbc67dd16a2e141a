# One program a file of bench/ (bench/decode_bench.cpp -> decode_bench), built by the target
# `benches` only.

add_custom_target(benches)
file(GLOB bench_sources CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/bench/*.cpp")
foreach(source ${bench_sources})
  get_filename_component(name "${source}" NAME_WE)
  add_executable(${name} EXCLUDE_FROM_ALL "${source}")
  target_include_directories(${name} PRIVATE "${CMAKE_SOURCE_DIR}/src" "${CMAKE_SOURCE_DIR}/bench")
  foreach(module eval jobs decode train draft target data text nn plan io block base)
    if(TARGET df_${module})
      target_link_libraries(${name} PRIVATE df_${module})
    endif()
  endforeach()
  target_link_libraries(${name} PRIVATE allocator)
  target_compile_options(${name} PRIVATE -fopenmp)
  target_precompile_headers(${name} REUSE_FROM df_nn)
  add_dependencies(benches ${name})
endforeach()
