# The libraries we need, for a machine whose packages are not installed here: header-only ones by links to this machine's
# headers (one folder of their own, since all of /usr/include would bring this machine's C library along), GoogleTest
# from Debian's source package.

set(headers "${CMAKE_BINARY_DIR}/cross_include")
file(MAKE_DIRECTORY "${headers}")
foreach(folder boost fmt nlohmann spdlog)
  file(CREATE_LINK "/usr/include/${folder}" "${headers}/${folder}" SYMBOLIC)
endforeach()

add_library(fmt::fmt INTERFACE IMPORTED)
target_include_directories(fmt::fmt INTERFACE "${headers}")
target_compile_definitions(fmt::fmt INTERFACE FMT_HEADER_ONLY)
add_library(nlohmann_json::nlohmann_json INTERFACE IMPORTED)
target_include_directories(nlohmann_json::nlohmann_json INTERFACE "${headers}")
add_library(spdlog::spdlog_header_only INTERFACE IMPORTED)
target_include_directories(spdlog::spdlog_header_only INTERFACE "${headers}")
set(Boost_INCLUDE_DIRS "${headers}")

if(SLUICE_TESTS)
  add_subdirectory(/usr/src/googletest "${CMAKE_BINARY_DIR}/googletest" EXCLUDE_FROM_ALL)
  foreach(library gtest gmock gtest_main)
    if(NOT TARGET GTest::${library})
      add_library(GTest::${library} ALIAS ${library})
    endif()
  endforeach()
endif()
