# `cmake --install` installs the program, one static library of all modules, their headers under include/strata, a
# CMake package with the target Strata::strata, and a pkg-config file.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

get_property(modules GLOBAL PROPERTY STRATA_MODULES)
set(objects)
set(libraries)
foreach(module ${modules})
  list(APPEND objects $<TARGET_OBJECTS:${module}>)
  get_target_property(linked ${module} LINK_LIBRARIES)
  list(APPEND libraries ${linked})
endforeach()
# The library contains the modules; its users link the system libraries.
list(FILTER libraries EXCLUDE REGEX "^strata_|BUILD_INTERFACE")
list(REMOVE_DUPLICATES libraries)

add_library(strata_library STATIC ${objects})
set_target_properties(strata_library PROPERTIES OUTPUT_NAME strata EXPORT_NAME strata LINKER_LANGUAGE CXX)
target_compile_features(strata_library INTERFACE cxx_std_20)
target_include_directories(strata_library INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/strata>)
target_link_libraries(strata_library INTERFACE ${libraries})

if(TARGET strata)
  install(TARGETS strata RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(TARGETS strata_library EXPORT StrataTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/src/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/strata
  FILES_MATCHING PATTERN "*.h")

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/Strata)
install(EXPORT StrataTargets NAMESPACE Strata:: DESTINATION ${package})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/StrataConfig.cmake.in
  ${PROJECT_BINARY_DIR}/StrataConfig.cmake INSTALL_DESTINATION ${package})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/StrataConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/StrataConfig.cmake ${PROJECT_BINARY_DIR}/StrataConfigVersion.cmake
  ${PROJECT_SOURCE_DIR}/cmake/StrataDependencies.cmake
  ${PROJECT_SOURCE_DIR}/cmake/StrataArrow.cmake DESTINATION ${package})

set(STRATA_OPTIONAL_REQUIRES "")
if(TARGET PkgConfig::sentencepiece)
  set(STRATA_OPTIONAL_REQUIRES sentencepiece)
endif()
configure_file(${PROJECT_SOURCE_DIR}/cmake/strata.pc.in ${PROJECT_BINARY_DIR}/strata.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/strata.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/README.md DESTINATION ${CMAKE_INSTALL_DOCDIR})

if(STRATA_TESTS)
  # Installs into the build tree and builds another project's program against it, by find_package and by pkg-config.
  add_test(NAME Install.AnotherProjectBuildsAgainstIt
    COMMAND ${PROJECT_SOURCE_DIR}/tests/install/check.sh ${PROJECT_BINARY_DIR} ${CMAKE_CXX_COMPILER})
  set(flags "")
  if(STRATA_SANITIZE)
    set(flags "-fsanitize=${STRATA_SANITIZE}")
  endif()
  set_tests_properties(Install.AnotherProjectBuildsAgainstIt PROPERTIES TIMEOUT 600
    ENVIRONMENT "STRATA_CONSUMER_FLAGS=${flags}")
endif()
