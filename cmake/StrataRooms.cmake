# strata_room(NAME SOURCES … USES rooms… LIBS libraries…): one static library a room. USES names the rooms that
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

find_program(STRATA_CCACHE ccache)
if(STRATA_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # ccache keeps objects that were made with a precompiled header only when told so.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${STRATA_CCACHE})
endif()

# Headers that nearly every file reads, parsed once. The kernels go without, since they compile each file for several
# instruction sets, and so does base, which alone has OpenMP's flag.
set(STRATA_PCH_HEADERS <algorithm> <cstdint> <filesystem> <functional> <map> <memory> <optional> <span> <string>
    <string_view> <unordered_map> <utility> <vector> <fmt/core.h>)
set(STRATA_ROOMS_WITHOUT_PCH base kernels_cpu)
# Rooms that run once at a start, where the optimizer's time is worth more than theirs: they take -O1, as tests do.
set(STRATA_ROOMS_RUN_ONCE cli config observe hardware models layers graph ops)
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
    # GCC 12 sees faults in std::string that are none (PR105329, PR105651). They are hidden as a system header's, but
    # not behind a precompiled one.
    target_compile_options(${TARGET} PRIVATE -fpch-preprocess -Wno-array-bounds -Wno-restrict
      -Wno-stringop-overflow -Wno-stringop-overread)
  endif()
endfunction()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  find_package(fmt REQUIRED)
  find_package(nlohmann_json REQUIRED)
  strata_pch(strata_pch_rooms HEADERS <nlohmann/json.hpp> LIBS fmt::fmt nlohmann_json::nlohmann_json)
  strata_pch(strata_pch_run_once HEADERS <nlohmann/json.hpp> OPTIONS ${STRATA_RUN_ONCE_OPTIONS}
    LIBS fmt::fmt nlohmann_json::nlohmann_json)
  if(STRATA_TESTS)
    find_package(GTest REQUIRED)
    strata_pch(strata_pch_tests HEADERS <gtest/gtest.h> <nlohmann/json.hpp> OPTIONS ${STRATA_RUN_ONCE_OPTIONS}
      LIBS fmt::fmt nlohmann_json::nlohmann_json GTest::gtest)
    # As the test programs are compiled: position-independent for an executable.
    set_target_properties(strata_pch_tests PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(strata_pch_tests PRIVATE -fPIE)
  endif()
endif()

function(strata_room NAME)
  cmake_parse_arguments(ROOM "" "" "SOURCES;USES;LIBS" ${ARGN})
  add_library(strata_${NAME} STATIC ${ROOM_SOURCES})
  target_link_libraries(strata_${NAME} PUBLIC strata_flags PRIVATE $<BUILD_INTERFACE:strata_warnings>)
  # What narrows says so with a cast. Clang's switch of that name also counts signs.
  target_compile_options(strata_${NAME} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wconversion>)
  foreach(used ${ROOM_USES})
    target_link_libraries(strata_${NAME} PUBLIC strata_${used})
  endforeach()
  target_link_libraries(strata_${NAME} PUBLIC ${ROOM_LIBS})
  set(pch strata_pch_rooms)
  if(NAME IN_LIST STRATA_ROOMS_RUN_ONCE)
    target_compile_options(strata_${NAME} PRIVATE ${STRATA_RUN_ONCE_OPTIONS})
    set(pch strata_pch_run_once)
  endif()
  if(NOT NAME IN_LIST STRATA_ROOMS_WITHOUT_PCH)
    strata_use_pch(strata_${NAME} ${pch})
  endif()
  set_property(GLOBAL APPEND PROPERTY STRATA_ROOMS strata_${NAME})
endfunction()

# strata_tests(NAME SOURCES … USES rooms… [LABEL long]): one GoogleTest program a room.
function(strata_tests NAME)
  if(NOT STRATA_TESTS)
    return()
  endif()
  cmake_parse_arguments(TESTS "" "LABEL" "SOURCES;USES;LIBS" ${ARGN})
  add_executable(${NAME}_tests ${TESTS_SOURCES})
  foreach(used ${TESTS_USES})
    target_link_libraries(${NAME}_tests PRIVATE strata_${used})
  endforeach()
  target_include_directories(${NAME}_tests PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_compile_definitions(${NAME}_tests PRIVATE STRATA_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data")
  target_link_libraries(${NAME}_tests PRIVATE $<BUILD_INTERFACE:strata_warnings> ${TESTS_LIBS} GTest::gtest_main)
  target_compile_options(${NAME}_tests PRIVATE ${STRATA_RUN_ONCE_OPTIONS})
  strata_use_pch(${NAME}_tests strata_pch_tests)
  # An empty label would swallow the property after it.
  set(properties TIMEOUT 600)
  if(TESTS_LABEL)
    list(APPEND properties LABELS ${TESTS_LABEL})
  endif()
  gtest_discover_tests(${NAME}_tests DISCOVERY_TIMEOUT 60 PROPERTIES ${properties})
endfunction()
