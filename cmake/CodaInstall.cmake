# coda::coda, the one target for users (of an installed coda, or of add_subdirectory / FetchContent), and what
# `cmake --install` copies: libraries, public headers, programs/, the package files (apps/coda adds the command line).
# Included last by the root CMakeLists.txt, when the property CODA_LIBRARIES is complete.

get_property(coda_libraries GLOBAL PROPERTY CODA_LIBRARIES)
add_library(coda_all INTERFACE)
add_library(coda::coda ALIAS coda_all)
target_link_libraries(coda_all INTERFACE ${coda_libraries})
target_compile_features(coda_all INTERFACE cxx_std_20)
set_target_properties(coda_all PROPERTIES EXPORT_NAME coda)

if(NOT CODA_INSTALL)
  return()
endif()

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(CODA_INSTALL_PROGRAMS ${CMAKE_INSTALL_DATADIR}/coda/programs)
set(coda_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/coda)

install(TARGETS coda_all ${coda_libraries} EXPORT coda-targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT coda-targets NAMESPACE coda:: DESTINATION ${coda_package_dir})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/coda DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(DIRECTORY ${PROJECT_SOURCE_DIR}/programs/ DESTINATION ${CODA_INSTALL_PROGRAMS} FILES_MATCHING PATTERN "*.coda")

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/coda-config.cmake.in ${PROJECT_BINARY_DIR}/coda-config.cmake
  INSTALL_DESTINATION ${coda_package_dir} PATH_VARS CODA_INSTALL_PROGRAMS)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/coda-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/coda-config.cmake ${PROJECT_BINARY_DIR}/coda-config-version.cmake
  DESTINATION ${coda_package_dir})
