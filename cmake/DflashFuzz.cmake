# Fuzz targets of the file readers: configure with clang and -DDFLASH_FUZZ=ON, then for example
#   build/fuzz/fuzz_gguf -max_total_time=60 corpus/ tests/golden/io/

option(DFLASH_FUZZ "Build the libFuzzer targets (clang only)" OFF)
if(NOT DFLASH_FUZZ)
  return()
endif()
if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  message(FATAL_ERROR "DFLASH_FUZZ needs clang: -DCMAKE_CXX_COMPILER=clang++")
endif()

# The sources are compiled again, since the sanitizers must see inside the readers.
file(GLOB fuzzed_sources "${CMAKE_SOURCE_DIR}/src/base/*.cpp" "${CMAKE_SOURCE_DIR}/src/io/*.cpp")
add_library(fuzzed OBJECT ${fuzzed_sources})
target_include_directories(fuzzed PUBLIC "${CMAKE_SOURCE_DIR}/src" "${CMAKE_SOURCE_DIR}/tests")
target_link_libraries(fuzzed PUBLIC fmt::fmt spdlog::spdlog nlohmann_json::nlohmann_json)
target_compile_options(fuzzed PUBLIC -g -O1 -fsanitize=fuzzer-no-link,address,undefined)
foreach(name safetensors gguf)
  add_executable(fuzz_${name} "${CMAKE_SOURCE_DIR}/tests/fuzz/${name}_fuzz.cpp")
  target_link_libraries(fuzz_${name} PRIVATE fuzzed)
  target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer,address,undefined)
endforeach()
