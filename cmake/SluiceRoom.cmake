# How a room (a folder under src/) becomes a library, a test program and a fuzz target, all with the same flags.

add_library(sluice_flags INTERFACE)
target_include_directories(sluice_flags INTERFACE "${CMAKE_SOURCE_DIR}/src")
# Contraction of a*b+c is a decision of arithmetic (docs/arithmetic.md), never of the compiler.
target_compile_options(sluice_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wvla -Wnon-virtual-dtor -Woverloaded-virtual -Werror
  -ffp-contract=off -fno-math-errno)
if(SLUICE_SANITIZE)
  target_compile_options(sluice_flags INTERFACE -fsanitize=${SLUICE_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer -g)
  target_link_options(sluice_flags INTERFACE -fsanitize=${SLUICE_SANITIZE})
endif()
if(SLUICE_FUZZ)
  target_compile_options(sluice_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()

# sluice_room(NAME SOURCES a.cpp ... ROOMS base gguf ... LINK fmt::fmt ...)
function(sluice_room name)
  cmake_parse_arguments(ARG "" "" "SOURCES;ROOMS;LINK" ${ARGN})
  add_library(sluice_${name} STATIC ${ARG_SOURCES})
  list(TRANSFORM ARG_ROOMS PREPEND sluice_)
  target_link_libraries(sluice_${name} PUBLIC sluice_flags ${ARG_ROOMS} ${ARG_LINK})
endfunction()

# sluice_test(NAME SOURCES a_test.cpp ... ROOMS quant ... LINK ...): one GoogleTest program a room keeps links few.
function(sluice_test name)
  if(NOT SLUICE_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "SOURCES;ROOMS;LINK" ${ARGN})
  add_executable(sluice_${name} ${ARG_SOURCES})
  list(TRANSFORM ARG_ROOMS PREPEND sluice_)
  target_link_libraries(sluice_${name} PRIVATE ${ARG_ROOMS} ${ARG_LINK} GTest::gtest GTest::gmock GTest::gtest_main)
  target_compile_definitions(sluice_${name} PRIVATE SLUICE_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  gtest_discover_tests(sluice_${name} TEST_PREFIX "${name}/" DISCOVERY_MODE PRE_TEST PROPERTIES TIMEOUT 900)
endfunction()
