# strata_module(NAME SOURCES … [ALONE …] USES modules… LIBS libraries…): one static library a module. USES names the modules that
# this one may use (docs/architecture.md); what it does not name does not link.
add_library(strata_flags INTERFACE)
target_include_directories(strata_flags INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>)
target_compile_features(strata_flags INTERFACE cxx_std_20)

add_library(strata_warnings INTERFACE)
target_compile_options(strata_warnings INTERFACE -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Werror)

if(STRATA_SANITIZE)
  # -O1: instrumented code takes 1.4 times as long to compile at -O2, and the tests are shorter than the build.
  add_compile_options(-fsanitize=${STRATA_SANITIZE} -fno-omit-frame-pointer -g1 -O1)
  add_link_options(-fsanitize=${STRATA_SANITIZE})
  if(STRATA_SANITIZE MATCHES "undefined")
    add_compile_options(-fno-sanitize-recover=undefined)
  endif()
endif()
if(STRATA_SANITIZE MATCHES "thread")
  # libgomp's barriers are invisible to the thread sanitizer: parallel_for takes plain threads there.
  add_compile_definitions(STRATA_PLAIN_THREADS=1)
  add_compile_options(-Wno-tsan)
endif()

if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # g++ collects its garbage each time its heap has grown by a share: a tenth of its time. Up to 1 GB it need not.
  add_compile_options("SHELL:--param ggc-min-heapsize=1048576")
endif()

find_program(STRATA_CCACHE ccache)
if(STRATA_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # ccache keeps objects that were made with a precompiled header only if asked to.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${STRATA_CCACHE})
endif()

# Headers that nearly every file reads, parsed once. The kernels go without, since they compile each file for several
# instruction sets, and so does base, which alone has OpenMP's flag.
set(STRATA_PCH_HEADERS <algorithm> <cstdint> <filesystem> <functional> <map> <memory> <optional> <span> <string>
    <string_view> <unordered_map> <utility> <vector> <fmt/core.h>)
set(STRATA_MODULES_WITHOUT_PCH base kernels_cpu)
# Modules that run once at a start, or wait for files and devices, where the optimizer's time is worth more than theirs:
# they take -O1, as tests do.
set(STRATA_MODULES_RUN_ONCE cli config observe hardware models layers graph ops optim parallel program device checkpoint interop_torch
    interop inference evaluation train benchmarks)
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
    # GCC 12 reports errors in std::string that do not exist (PR105329, PR105651). They are hidden as a system header's, but
    # not after a precompiled one.
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
    # As the test programs are compiled: position-independent for an executable.
    set_target_properties(strata_pch_tests PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(strata_pch_tests PRIVATE -fPIE)
  endif()
endif()

# Files of a module are compiled a few at a time as one, because what they share takes most of the time: headers, and
# templates that each would instantiate again. Names in anonymous namespaces of neighbours must differ; files that
# cannot do so are listed after ALONE. -DSTRATA_UNITY=OFF compiles each file by itself.
option(STRATA_UNITY "Compile several files of a module as one" ON)
function(strata_unity TARGET)
  if(STRATA_UNITY)
    set_target_properties(${TARGET} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
    # A file that is included looks like a header, whose types should not have members of types without linkage.
    target_compile_options(${TARGET} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
    set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endif()
endfunction()

function(strata_module NAME)
  cmake_parse_arguments(MODULE "" "" "SOURCES;ALONE;USES;LIBS" ${ARGN})
  add_library(strata_${NAME} STATIC ${MODULE_SOURCES} ${MODULE_ALONE})
  strata_unity(strata_${NAME} ${MODULE_ALONE})
  target_link_libraries(strata_${NAME} PUBLIC strata_flags PRIVATE $<BUILD_INTERFACE:strata_warnings>)
  # What narrows says so with a cast. Clang's switch of that name also counts signs.
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

# The figures of this processor that tests find instead of measuring it (tests/runner/describe_processor.cpp).
set(STRATA_TEST_CACHE ${PROJECT_BINARY_DIR}/test-cache)

# strata_tests(NAME SOURCES … [ALONE …] USES modules… [SHARDS n] [LABELS …]): one GoogleTest program a module, which CTest runs as
# n processes, each with a consecutive range of its tests (tests/runner/main.cpp).
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
  set(environment STRATA_TEST_TIMEOUT=600 XDG_CACHE_HOME=${STRATA_TEST_CACHE})
  if(NOT STRATA_SANITIZE)
    # Failures only. A sanitizer that ends a program does not name the test, so there every name is printed.
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
