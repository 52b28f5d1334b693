# What `cmake --install` puts in place: the program, one shared library with the interface of include/strata and nothing
# else, its headers, a CMake package with the target Strata::strata, and a pkg-config file.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

get_property(modules GLOBAL PROPERTY STRATA_MODULES)
# The command line, its benchmarks, its self-test and the supervision of processes are the program's; NVIDIA's driver is strata_cuda.so's.
list(REMOVE_ITEM modules strata_cli strata_benchmarks strata_self_test strata_launch strata_device_cuda)
set(objects)
set(libraries)
foreach(module ${modules})
  list(APPEND objects $<TARGET_OBJECTS:${module}>)
  get_target_property(linked ${module} LINK_LIBRARIES)
  list(APPEND libraries ${linked})
endforeach()
list(FILTER libraries EXCLUDE REGEX "^strata_|BUILD_INTERFACE")
list(REMOVE_DUPLICATES libraries)

# Its name changes with each release that may break programs: 0.x.
set(STRATA_ABI ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
add_library(strata_shared SHARED ${objects})
set_target_properties(strata_shared PROPERTIES OUTPUT_NAME strata EXPORT_NAME strata LINKER_LANGUAGE CXX
  VERSION ${PROJECT_VERSION} SOVERSION ${STRATA_ABI})
target_compile_features(strata_shared INTERFACE cxx_std_20)
target_include_directories(strata_shared INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_libraries(strata_shared PRIVATE ${libraries})
target_link_options(strata_shared PRIVATE LINKER:--exclude-libs,ALL LINKER:--as-needed)

if(TARGET strata)
  install(TARGETS strata RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(TARGETS strata_shared EXPORT StrataTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/strata DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/Strata)
install(EXPORT StrataTargets NAMESPACE Strata:: DESTINATION ${package})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/StrataConfig.cmake.in
  ${PROJECT_BINARY_DIR}/StrataConfig.cmake INSTALL_DESTINATION ${package})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/StrataConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/StrataConfig.cmake ${PROJECT_BINARY_DIR}/StrataConfigVersion.cmake
  DESTINATION ${package})

configure_file(${PROJECT_SOURCE_DIR}/cmake/strata.pc.in ${PROJECT_BINARY_DIR}/strata.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/strata.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/README.md DESTINATION ${CMAKE_INSTALL_DOCDIR})

if(STRATA_TESTS)
  # Installs into the build tree, and builds and runs examples/embed against it, found in both ways.
  add_test(NAME Install.AnotherProjectBuildsAgainstIt
    COMMAND ${PROJECT_SOURCE_DIR}/tests/install/check.sh ${PROJECT_BINARY_DIR} ${CMAKE_CXX_COMPILER})
  set(flags "")
  if(STRATA_SANITIZE)
    set(flags "-fsanitize=${STRATA_SANITIZE}")
  endif()
  set_tests_properties(Install.AnotherProjectBuildsAgainstIt PROPERTIES TIMEOUT 600
    ENVIRONMENT "STRATA_CONSUMER_FLAGS=${flags}")
endif()
