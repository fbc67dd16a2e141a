# One test program a module (tests/<module>/*.cpp); style checks are tests of the same run.

enable_testing()
find_package(GTest REQUIRED)
find_program(PYTHON3 python3)

add_library(test_paths STATIC "${CMAKE_SOURCE_DIR}/tests/support/paths.cpp")
target_include_directories(test_paths PRIVATE "${CMAKE_SOURCE_DIR}/tests")
target_compile_definitions(test_paths PRIVATE
  DFLASH_SOURCE_DIR="${CMAKE_SOURCE_DIR}" DFLASH_PROGRAM="${CMAKE_BINARY_DIR}/dflash-cpp")

set(TEST_MODULES base io block runs plan text nn data target draft train decode jobs eval serve doctor cli)
foreach(module ${TEST_MODULES})
  file(GLOB sources CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/tests/${module}/*.cpp")
  if(NOT sources OR NOT TARGET df_${module})
    continue()
  endif()
  add_executable(test_${module} ${sources})
  target_include_directories(test_${module} PRIVATE "${CMAKE_SOURCE_DIR}/src" "${CMAKE_SOURCE_DIR}/tests")
  target_link_libraries(test_${module} PRIVATE df_${module} test_paths GTest::gtest GTest::gmock GTest::gtest_main)
  get_target_property(links df_${module} COMPILE_OPTIONS)
  if(TARGET df_nn AND "${links}" MATCHES "fopenmp")
    target_precompile_headers(test_${module} REUSE_FROM df_nn)
  endif()
  add_test(NAME ${module} COMMAND test_${module})
  # Waiting threads sleep: on a shared machine spinning ones take the time they wait for.
  set_tests_properties(${module} PROPERTIES TIMEOUT 1200 ENVIRONMENT "OMP_WAIT_POLICY=passive")
endforeach()

foreach(module eval serve)  # the hand-made target is decode's
  if(TARGET test_${module})
    target_sources(test_${module} PRIVATE "${CMAKE_SOURCE_DIR}/tests/decode/fake_target.cpp")
  endif()
endforeach()
if(TARGET test_cli)
  add_dependencies(test_cli dflash-cpp)  # it runs the program
endif()

if(TARGET df_cli)  # `make prove`: long, not part of ctest
  add_executable(prove EXCLUDE_FROM_ALL "${CMAKE_SOURCE_DIR}/tests/prove/prove.cpp")
  target_include_directories(prove PRIVATE "${CMAKE_SOURCE_DIR}/src" "${CMAKE_SOURCE_DIR}/tests")
  target_link_libraries(prove PRIVATE df_cli GTest::gtest)
  target_precompile_headers(prove REUSE_FROM df_nn)
endif()

foreach(check includes sizes format)
  if(EXISTS "${CMAKE_SOURCE_DIR}/scripts/check_${check}.py")
    add_test(NAME style_${check} COMMAND ${PYTHON3} "${CMAKE_SOURCE_DIR}/scripts/check_${check}.py"
      WORKING_DIRECTORY "${CMAKE_SOURCE_DIR}")
  endif()
endforeach()

add_test(NAME prompts COMMAND ${PYTHON3} "${CMAKE_SOURCE_DIR}/tools/compose_prompts.py" --check)
