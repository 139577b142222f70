# What `cmake --install` puts where: the program with its man page and completions, and the library (the rooms below the
# command line) with headers and a CMake package, so that `find_package(Sluice)` gives the target Sluice::sluice.

include(CMakePackageConfigHelpers)

if(TARGET sluice)
  set(texts "${CMAKE_BINARY_DIR}/sluice.1")
  add_custom_command(OUTPUT "${CMAKE_BINARY_DIR}/sluice.1" COMMAND sluice man > "${CMAKE_BINARY_DIR}/sluice.1"
    DEPENDS sluice VERBATIM)
  foreach(shell bash zsh fish)
    add_custom_command(OUTPUT "${CMAKE_BINARY_DIR}/sluice.${shell}"
      COMMAND sluice completion ${shell} > "${CMAKE_BINARY_DIR}/sluice.${shell}" DEPENDS sluice VERBATIM)
    list(APPEND texts "${CMAKE_BINARY_DIR}/sluice.${shell}")
  endforeach()
  add_custom_target(sluice_texts ALL DEPENDS ${texts})

  install(TARGETS sluice)
  install(FILES "${CMAKE_BINARY_DIR}/sluice.1" DESTINATION "${CMAKE_INSTALL_MANDIR}/man1")
  install(FILES "${CMAKE_BINARY_DIR}/sluice.bash" DESTINATION "${CMAKE_INSTALL_DATADIR}/bash-completion/completions"
    RENAME sluice)
  install(FILES "${CMAKE_BINARY_DIR}/sluice.zsh" DESTINATION "${CMAKE_INSTALL_DATADIR}/zsh/site-functions" RENAME _sluice)
  install(FILES "${CMAKE_BINARY_DIR}/sluice.fish" DESTINATION "${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d")
endif()

get_property(libraries GLOBAL PROPERTY SLUICE_LIBRARIES)
list(REMOVE_ITEM libraries sluice_cli)
add_library(sluice_all INTERFACE)
target_link_libraries(sluice_all INTERFACE ${libraries})
set_target_properties(sluice_all PROPERTIES EXPORT_NAME sluice)
set_target_properties(sluice_flags PROPERTIES EXPORT_NAME flags)

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/Sluice")
install(TARGETS ${libraries} sluice_all EXPORT SluiceTargets)
install(EXPORT SluiceTargets NAMESPACE Sluice:: DESTINATION "${package_dir}")
install(DIRECTORY src/ DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/sluice"
  FILES_MATCHING PATTERN "*.h" PATTERN cli EXCLUDE PATTERN "test_*" EXCLUDE)
configure_package_config_file(cmake/SluiceConfig.cmake.in "${CMAKE_BINARY_DIR}/SluiceConfig.cmake"
  INSTALL_DESTINATION "${package_dir}")
write_basic_package_version_file("${CMAKE_BINARY_DIR}/SluiceConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_BINARY_DIR}/SluiceConfig.cmake" "${CMAKE_BINARY_DIR}/SluiceConfigVersion.cmake"
  DESTINATION "${package_dir}")
