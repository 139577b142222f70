# How a room (a folder under src/) becomes a library, a test program and a fuzz target, all with the same flags.

include(GNUInstallDirs)

add_library(sluice_flags INTERFACE)
target_include_directories(sluice_flags INTERFACE
  "$<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/src>" "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/sluice>")
target_compile_features(sluice_flags INTERFACE cxx_std_20)  # those who link an installed library need it too

set(flags -Wall -Wextra -Wpedantic -Wshadow -Wvla -Wnon-virtual-dtor -Woverloaded-virtual -Werror
  # Contraction of a*b+c is a decision of arithmetic (docs/arithmetic.md), never of the compiler.
  -ffp-contract=off -fno-math-errno
  # Lets loops that choose by comparing floats vectorise; no result depends on floating-point traps.
  -fno-trapping-math)
if(SLUICE_SANITIZE)
  list(APPEND flags -fsanitize=${SLUICE_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer -g1)
  target_link_options(sluice_flags INTERFACE "$<BUILD_INTERFACE:-fsanitize=${SLUICE_SANITIZE}>")
endif()
if(SLUICE_SANITIZE MATCHES thread AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(APPEND flags -Wno-tsan)  # Asio has fences, of which the sanitizer knows nothing; its locks say the same
endif()
if(SLUICE_FUZZ)
  list(APPEND flags -fsanitize=fuzzer-no-link)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(APPEND flags -fpch-preprocess)  # without it ccache can't tell what a precompiled header holds
endif()
# What is our own discipline does not bind those who link an installed library.
target_compile_options(sluice_flags INTERFACE "$<BUILD_INTERFACE:${flags}>")

# Headers that most sources read, compiled once for the libraries and once for the tests: this halves the time of a full
# build. Nlohmann's JSON is not among them: what its templates leave to instantiate would cost every source a second.
# Sources with flags of their own can't share them (skip_precompiled_headers).
set(library_headers <algorithm> <functional> <map> <memory> <optional> <span> <string> <string_view> <variant> <vector>
  <fmt/core.h>)
set(test_headers <gtest/gtest.h> <gmock/gmock.h>)

# precompile(TARGET GROUP HEADERS...): the first target of a group compiles the headers, the others take them from it.
function(precompile target group)
  get_property(first GLOBAL PROPERTY SLUICE_PRECOMPILED_${group})
  if(first)
    target_precompile_headers(${target} REUSE_FROM ${first})
  else()
    target_precompile_headers(${target} PRIVATE ${ARGN})
    set_property(GLOBAL PROPERTY SLUICE_PRECOMPILED_${group} ${target})
  endif()
endfunction()

# quickly_compiled(TARGET): for code that is compiled quickly rather than to be quick, such as the tests' and commands'
# own: that is a third of a full build.
function(quickly_compiled target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
endfunction()

# Every room's library, for installing.
set_property(GLOBAL PROPERTY SLUICE_LIBRARIES sluice_flags)

# sluice_room(NAME SOURCES a.cpp ... ROOMS base gguf ... LINK fmt::fmt ...)
function(sluice_room name)
  cmake_parse_arguments(ARG "" "" "SOURCES;ROOMS;LINK" ${ARGN})
  add_library(sluice_${name} STATIC ${ARG_SOURCES})
  list(TRANSFORM ARG_ROOMS PREPEND sluice_)
  target_link_libraries(sluice_${name} PUBLIC sluice_flags ${ARG_ROOMS} ${ARG_LINK})
  set_target_properties(sluice_${name} PROPERTIES EXPORT_NAME ${name})
  precompile(sluice_${name} libraries ${library_headers})
  set_property(GLOBAL APPEND PROPERTY SLUICE_LIBRARIES sluice_${name})
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
  quickly_compiled(sluice_${name})
  precompile(sluice_${name} tests ${library_headers} ${test_headers})
  gtest_discover_tests(sluice_${name} TEST_PREFIX "${name}/" DISCOVERY_MODE PRE_TEST PROPERTIES TIMEOUT 900)
endfunction()

# sluice_fuzz(NAME SOURCES name_fuzz.cpp ROOMS gguf ...): a libFuzzer program; inputs to start from lie in fuzz/seeds/NAME.
function(sluice_fuzz name)
  cmake_parse_arguments(ARG "" "" "SOURCES;ROOMS;LINK" ${ARGN})
  add_executable(fuzz_${name} ${ARG_SOURCES})
  list(TRANSFORM ARG_ROOMS PREPEND sluice_)
  target_link_libraries(fuzz_${name} PRIVATE ${ARG_ROOMS} ${ARG_LINK})
  target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
endfunction()
