# One library a folder of src/. The table of who may include whom is in scripts/check_includes.py.

find_package(nlohmann_json REQUIRED)
find_package(fmt REQUIRED)
# The wheel of LibTorch ships headers of another fmt: those of the library we link come first.
get_target_property(fmt_folder fmt::fmt INTERFACE_INCLUDE_DIRECTORIES)
file(MAKE_DIRECTORY "${CMAKE_BINARY_DIR}/first_headers")
file(CREATE_LINK "${fmt_folder}/fmt" "${CMAKE_BINARY_DIR}/first_headers/fmt" SYMBOLIC)
include_directories(BEFORE "${CMAKE_BINARY_DIR}/first_headers")
find_package(spdlog REQUIRED)
find_package(CLI11 REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)
pkg_check_modules(HTTPLIB REQUIRED IMPORTED_TARGET cpp-httplib)

# dflash_module(name TORCH|PLAIN dependencies...)
function(dflash_module name kind)
  file(GLOB sources CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/src/${name}/*.cpp"
    "${CMAKE_SOURCE_DIR}/src/${name}/*/*.cpp")
  list(FILTER sources EXCLUDE REGEX "src/cli/(main|allocator).cpp$")
  if(NOT sources)
    return()
  endif()
  add_library(df_${name} STATIC ${sources})
  target_include_directories(df_${name} PUBLIC "${CMAKE_SOURCE_DIR}/src")
  target_link_libraries(df_${name} PUBLIC fmt::fmt spdlog::spdlog nlohmann_json::nlohmann_json)
  if(kind STREQUAL "TORCH")
    target_link_libraries(df_${name} PUBLIC libtorch)
    target_compile_options(df_${name} PUBLIC -fopenmp)
    if(name STREQUAL "nn")
      target_precompile_headers(df_nn PRIVATE "${CMAKE_SOURCE_DIR}/src/nn/pch.h")
    else()
      target_precompile_headers(df_${name} REUSE_FROM df_nn)
    endif()
  endif()
  foreach(dependency ${ARGN})
    if(TARGET df_${dependency} OR TARGET ${dependency})
      if(TARGET df_${dependency})
        target_link_libraries(df_${name} PUBLIC df_${dependency})
      else()
        target_link_libraries(df_${name} PUBLIC ${dependency})
      endif()
    endif()
  endforeach()
  # Kernels compiled for one instruction set: the file's name says which.
  foreach(source ${sources})
    if(source MATCHES "/kernels/")
      set_source_files_properties(${source} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
    endif()
    if(source MATCHES "_amx\\.cpp$")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS
        "-O3;-mavx512f;-mavx512bw;-mavx512vl;-mavx512dq;-mavx512bf16;-mfma;-mf16c;-mamx-tile;-mamx-bf16")
    elseif(source MATCHES "_avx512bf16\\.cpp$")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS
        "-O3;-mavx512f;-mavx512bw;-mavx512vl;-mavx512dq;-mavx512bf16;-mfma;-mf16c")
    elseif(source MATCHES "_avx512\\.cpp$")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS
        "-O3;-mavx512f;-mavx512bw;-mavx512vl;-mavx512dq;-mfma;-mf16c;-mprefer-vector-width=512")
    elseif(source MATCHES "_avx2\\.cpp$")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "-O3;-mavx2;-mfma;-mf16c")
    endif()
  endforeach()
endfunction()

dflash_module(base PLAIN)
dflash_module(io PLAIN base)
dflash_module(block PLAIN base)
dflash_module(runs PLAIN base io)
dflash_module(plan PLAIN base)
dflash_module(text PLAIN base io PkgConfig::PCRE2 PkgConfig::UTF8PROC)
dflash_module(nn TORCH base io)
dflash_module(data PLAIN base io block text)
dflash_module(target TORCH base io nn)
dflash_module(draft TORCH base io block nn)
dflash_module(train TORCH base io block plan data nn target draft)
dflash_module(decode TORCH base block nn target draft)
dflash_module(jobs TORCH base io block text data nn target draft train decode)
dflash_module(eval TORCH base io block text data nn target draft decode)
dflash_module(serve TORCH base io block text data nn target draft decode PkgConfig::HTTPLIB)
dflash_module(doctor TORCH base io block text data nn target draft train decode jobs eval)
dflash_module(cli TORCH base io block text data nn target draft train decode jobs eval serve doctor
  runs plan CLI11::CLI11)

# The pages of web/ become texts of the program.
set(page "${CMAKE_BINARY_DIR}/embedded/chat_page.cpp")
add_custom_command(OUTPUT "${page}"
  COMMAND ${CMAKE_COMMAND} -DFROM=${CMAKE_SOURCE_DIR}/web/chat.html -DTO=${page}
    -DHEADER=serve/page.h -DFUNCTION=dflash::serve::chat_page
    -P "${CMAKE_SOURCE_DIR}/cmake/EmbedText.cmake"
  DEPENDS "${CMAKE_SOURCE_DIR}/web/chat.html" "${CMAKE_SOURCE_DIR}/cmake/EmbedText.cmake")
target_sources(df_serve PRIVATE "${page}")
# One file, which includes no Torch, sees cpp-httplib.
set_source_files_properties("${page}" src/serve/http.cpp PROPERTIES SKIP_PRECOMPILE_HEADERS ON)

set_source_files_properties(src/cli/version.cpp PROPERTIES SKIP_PRECOMPILE_HEADERS ON
  COMPILE_DEFINITIONS "DFLASH_VERSION=\"${PROJECT_VERSION}\"")

# malloc of the program and the benches. A training process leaves the C library's heap with
# thousands of free blocks of unlike sizes, and every large block that is freed afterwards is sorted
# in among them: drafting in the same process took twice as long. The sanitizers bring their own.
add_library(allocator INTERFACE)
if(NOT CMAKE_CXX_FLAGS MATCHES "sanitize")
  find_library(JEMALLOC jemalloc)
  if(NOT JEMALLOC)
    message(FATAL_ERROR "jemalloc not found: install libjemalloc-dev")
  endif()
  target_sources(allocator INTERFACE "${CMAKE_SOURCE_DIR}/src/cli/allocator.cpp")
  target_link_options(allocator INTERFACE "-Wl,--no-as-needed")
  target_link_libraries(allocator INTERFACE "${JEMALLOC}")
endif()

if(EXISTS "${CMAKE_SOURCE_DIR}/src/cli/main.cpp")
  add_executable(dflash-cpp src/cli/main.cpp)
  target_link_libraries(dflash-cpp PRIVATE df_cli allocator)
endif()
