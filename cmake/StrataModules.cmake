# strata_module(NAME SOURCES … [ALONE …] USES modules… LIBS libraries…): one static library per module. USES lists the
# modules that this one may use (docs/architecture.md); others do not link.
add_library(strata_flags INTERFACE)
target_include_directories(strata_flags INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>)
target_compile_features(strata_flags INTERFACE cxx_std_20)
# The shared library shows what include/strata declares, and calls within it need no table.
target_compile_options(strata_flags INTERFACE -fvisibility=hidden -fvisibility-inlines-hidden)

add_library(strata_warnings INTERFACE)
target_compile_options(strata_warnings INTERFACE -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Werror)

if(STRATA_SANITIZE)
  # -O1: at -O2 instrumented code takes 1.4 times as long to compile, and building takes longer than the tests.
  add_compile_options(-fsanitize=${STRATA_SANITIZE} -fno-omit-frame-pointer -g1 -O1)
  add_link_options(-fsanitize=${STRATA_SANITIZE})
  if(STRATA_SANITIZE MATCHES "undefined")
    add_compile_options(-fno-sanitize-recover=undefined)
  endif()
endif()
if(STRATA_SANITIZE MATCHES "thread")
  # The thread sanitizer does not know libgomp's barriers, so parallel_for uses plain threads.
  add_compile_definitions(STRATA_PLAIN_THREADS=1)
  add_compile_options(-Wno-tsan)
endif()

if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # Garbage collection takes a tenth of g++'s time; it is not needed for heaps up to 1 GB.
  add_compile_options("SHELL:--param ggc-min-heapsize=1048576")
endif()

find_program(STRATA_CCACHE ccache)
if(STRATA_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # ccache caches objects compiled with a precompiled header only with these settings.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${STRATA_CCACHE})
endif()

# Headers that nearly every file includes, parsed once. Not for the kernels, which compile each file for several
# instruction sets, nor for base, the only module with the OpenMP flag.
set(STRATA_PCH_HEADERS <algorithm> <cstdint> <filesystem> <functional> <map> <memory> <optional> <span> <string>
    <string_view> <unordered_map> <utility> <vector> <fmt/core.h>)
set(STRATA_MODULES_WITHOUT_PCH base kernels_cpu)
# Modules that run once at startup or wait for files and devices. They are compiled with -O1, like the tests, because
# compile time matters more than their run time.
set(STRATA_MODULES_RUN_ONCE cli config observe hardware models layers graph ops optim parallel program device checkpoint checkpoint_files interop_torch
    interop inference evaluation diagnosis train launch library benchmarks)
if(NOT STRATA_SANITIZE)
  set(STRATA_RUN_ONCE_OPTIONS "$<$<CONFIG:Release>:-O1;-g0>")
endif()
function(strata_pch NAME)
  cmake_parse_arguments(PCH "" "" "HEADERS;LIBS;OPTIONS" ${ARGN})
  file(GENERATE OUTPUT ${PROJECT_BINARY_DIR}/pch/${NAME}.cpp CONTENT "")
  add_library(${NAME} STATIC ${PROJECT_BINARY_DIR}/pch/${NAME}.cpp)
  target_link_libraries(${NAME} PRIVATE strata_flags strata_warnings ${PCH_LIBS})
  target_precompile_headers(${NAME} PRIVATE ${STRATA_PCH_HEADERS} ${PCH_HEADERS})
  target_compile_options(${NAME} PRIVATE -fpch-preprocess ${PCH_OPTIONS})
endfunction()
function(strata_use_pch TARGET NAME)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_precompile_headers(${TARGET} REUSE_FROM ${NAME})
    # GCC 12 reports false errors in std::string (PR105329, PR105651). It suppresses them in system headers, but not
    # with a precompiled header.
    target_compile_options(${TARGET} PRIVATE -fpch-preprocess -Wno-array-bounds -Wno-restrict
      -Wno-stringop-overflow -Wno-stringop-overread)
  endif()
endfunction()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  find_package(fmt REQUIRED)
  strata_pch(strata_pch_modules LIBS fmt::fmt)
  strata_pch(strata_pch_run_once OPTIONS ${STRATA_RUN_ONCE_OPTIONS} LIBS fmt::fmt)
  if(STRATA_TESTS)
    find_package(GTest REQUIRED)
    strata_pch(strata_pch_tests HEADERS <gtest/gtest.h> OPTIONS ${STRATA_RUN_ONCE_OPTIONS} LIBS fmt::fmt GTest::gtest)
    # Compiled like the test programs: as position-independent executables.
    set_target_properties(strata_pch_tests PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(strata_pch_tests PRIVATE -fPIE)
  endif()
endif()

# Several files of a module are compiled as one, because most of the compile time is spent on shared headers and
# templates. Names in anonymous namespaces must be unique within a module; files that cannot comply are listed after
# ALONE. -DSTRATA_UNITY=OFF compiles each file separately.
option(STRATA_UNITY "Compile several files of a module as one" ON)
function(strata_unity TARGET)
  if(STRATA_UNITY)
    set_target_properties(${TARGET} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
    # GCC treats included files as headers, whose types should not have members of types without linkage.
    target_compile_options(${TARGET} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
    set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endif()
endfunction()

function(strata_module NAME)
  cmake_parse_arguments(MODULE "" "" "SOURCES;ALONE;USES;LIBS" ${ARGN})
  add_library(strata_${NAME} STATIC ${MODULE_SOURCES} ${MODULE_ALONE})
  strata_unity(strata_${NAME} ${MODULE_ALONE})
  target_link_libraries(strata_${NAME} PUBLIC strata_flags PRIVATE $<BUILD_INTERFACE:strata_warnings>)
  # Narrowing conversions need a cast. Clang's option of the same name also reports sign conversions.
  target_compile_options(strata_${NAME} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wconversion>)
  foreach(used ${MODULE_USES})
    target_link_libraries(strata_${NAME} PUBLIC strata_${used})
  endforeach()
  target_link_libraries(strata_${NAME} PUBLIC ${MODULE_LIBS})
  set(pch strata_pch_modules)
  if(NAME IN_LIST STRATA_MODULES_RUN_ONCE)
    target_compile_options(strata_${NAME} PRIVATE ${STRATA_RUN_ONCE_OPTIONS})
    set(pch strata_pch_run_once)
  endif()
  if(NOT NAME IN_LIST STRATA_MODULES_WITHOUT_PCH)
    strata_use_pch(strata_${NAME} ${pch})
  endif()
  set_property(GLOBAL APPEND PROPERTY STRATA_MODULES strata_${NAME})
endfunction()

# A cached description of this processor, so tests need not measure it (tests/runner/describe_processor.cpp).
set(STRATA_TEST_CACHE ${PROJECT_BINARY_DIR}/test-cache)

# strata_tests(NAME SOURCES … [ALONE …] USES modules… [SHARDS n] [LABELS …]): one GoogleTest program per module, which
# CTest runs as n processes, each with a consecutive range of its tests (tests/runner/main.cpp).
function(strata_tests NAME)
  if(NOT STRATA_TESTS)
    return()
  endif()
  cmake_parse_arguments(TESTS "" "SHARDS" "SOURCES;ALONE;USES;LIBS;LABELS" ${ARGN})
  add_executable(${NAME}_tests ${TESTS_SOURCES} ${TESTS_ALONE})
  strata_unity(${NAME}_tests ${TESTS_ALONE})
  foreach(used ${TESTS_USES})
    target_link_libraries(${NAME}_tests PRIVATE strata_${used})
  endforeach()
  target_include_directories(${NAME}_tests PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_compile_definitions(${NAME}_tests PRIVATE STRATA_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data")
  target_link_libraries(${NAME}_tests PRIVATE $<BUILD_INTERFACE:strata_warnings> ${TESTS_LIBS} strata_test_main)
  target_compile_options(${NAME}_tests PRIVATE ${STRATA_RUN_ONCE_OPTIONS})
  strata_use_pch(${NAME}_tests strata_pch_tests)

  if("quick" IN_LIST TESTS_LABELS)
    add_dependencies(quick_tests ${NAME}_tests)
  endif()
  if("long" IN_LIST TESTS_LABELS)
    set_target_properties(${NAME}_tests PROPERTIES EXCLUDE_FROM_ALL ON)
    add_dependencies(long_tests ${NAME}_tests)
  endif()
  set(environment STRATA_TEST_TIMEOUT=600 XDG_CACHE_HOME=${STRATA_TEST_CACHE})
  if(NOT STRATA_SANITIZE)
    # Prints failures only. With sanitizers every name is printed, because an aborting sanitizer does not name the test.
    list(APPEND environment GTEST_BRIEF=1)
  endif()
  if(NOT TESTS_SHARDS)
    set(TESTS_SHARDS 1)
  endif()
  foreach(shard RANGE 1 ${TESTS_SHARDS})
    set(name ${NAME}_tests)
    if(TESTS_SHARDS GREATER 1)
      set(name ${NAME}_tests.${shard}_of_${TESTS_SHARDS})
    endif()
    add_test(NAME ${name} COMMAND ${NAME}_tests)
    set_tests_properties(${name} PROPERTIES TIMEOUT 3600 LABELS "${TESTS_LABELS}"
      FIXTURES_REQUIRED processor ENVIRONMENT "${environment};STRATA_TEST_SHARD=${shard}/${TESTS_SHARDS}")
  endforeach()
endfunction()
