# Finds LibTorch and defines the target `libtorch` (headers + libraries + rpath).
#
# Order: TORCH_DIR (an unpacked libtorch, or the `torch` folder of a wheel), then the wheel of the
# project's own environment (.venv), then find_package(Torch). The wheel is used directly because
# its own CMake files want a CUDA toolkit whenever the build has CUDA.

set(TORCH_DIR "" CACHE PATH "an unpacked libtorch or the torch folder of a wheel")

function(dflash_wheel_dir python out)
  execute_process(
    COMMAND ${python} -c
      "import importlib.util as u;s=u.find_spec('torch');print(s.submodule_search_locations[0] if s else '')"
    OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  set(${out} "${found}" PARENT_SCOPE)
endfunction()

set(torch_root "")
if(TORCH_DIR)
  set(torch_root "${TORCH_DIR}")
elseif(EXISTS "${CMAKE_SOURCE_DIR}/.venv/bin/python")
  dflash_wheel_dir("${CMAKE_SOURCE_DIR}/.venv/bin/python" torch_root)
endif()

if(torch_root AND EXISTS "${torch_root}/lib/libtorch_cpu.so")
  add_library(libtorch INTERFACE)
  target_include_directories(libtorch SYSTEM INTERFACE
    "${torch_root}/include" "${torch_root}/include/torch/csrc/api/include")
  target_link_directories(libtorch INTERFACE "${torch_root}/lib")
  target_link_options(libtorch INTERFACE "-Wl,--disable-new-dtags" "-Wl,-rpath,${torch_root}/lib")
  target_link_libraries(libtorch INTERFACE
    "${torch_root}/lib/libtorch_cpu.so" "${torch_root}/lib/libc10.so")
  if(EXISTS "${torch_root}/lib/libtorch_cuda.so")
    target_link_options(libtorch INTERFACE "-Wl,--no-as-needed")
    target_link_libraries(libtorch INTERFACE
      "${torch_root}/lib/libtorch_cuda.so" "${torch_root}/lib/libc10_cuda.so")
  endif()
  # One OpenMP runtime only: the wheel's own, if it brings one.
  if(EXISTS "${torch_root}/lib/libgomp.so.1")
    target_link_libraries(libtorch INTERFACE "${torch_root}/lib/libgomp.so.1")
  else()
    target_link_libraries(libtorch INTERFACE gomp)
  endif()
  file(STRINGS "${torch_root}/include/torch/headeronly/version.h" lines
    REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
  string(REGEX REPLACE "[^0-9;]" "" version "${lines}")
  string(REPLACE ";" "." version "${version}")
  message(STATUS "LibTorch ${version}: ${torch_root}")
else()
  find_package(Torch QUIET)
  if(NOT Torch_FOUND)
    message(FATAL_ERROR
      "LibTorch not found. Run 'make setup' (installs it into .venv), or give an unpacked one:\n"
      "  make TORCH_DIR=/path/to/libtorch")
  endif()
  add_library(libtorch INTERFACE)
  target_link_libraries(libtorch INTERFACE torch gomp)
endif()
