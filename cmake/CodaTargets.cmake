# coda_library(NAME DEPS ...): the static library of one folder of src/, from every .cc file in it.
# coda_test(NAME LIBS ... [LABELS ...]): one doctest executable from <NAME>.cc, registered with ctest under its name.
# Labels: `unit` (the default: also run under the sanitizers), `slow` (release builds only).

# -Wno-restrict: g++ 12 and 13 warn of an overlap inside std::string's own operator+ (GCC bug 105651).
add_library(coda_flags INTERFACE)
target_compile_options(coda_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion
  $<$<BOOL:${CODA_WERROR}>:-Werror> -ffp-contract=off -fno-math-errno
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
if(CODA_SANITIZE)
  target_compile_options(coda_flags INTERFACE -fsanitize=${CODA_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(coda_flags INTERFACE -fsanitize=${CODA_SANITIZE})
endif()

set_property(GLOBAL PROPERTY CODA_LIBRARIES "")

function(coda_library name)
  cmake_parse_arguments(ARG "" "" "DEPS;PRIVATE_DEPS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc)
  set(target coda_${name})
  add_library(${target} STATIC ${sources})
  add_library(coda::${name} ALIAS ${target})
  target_include_directories(${target} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:include>)
  # Folders see each other as "ir/…", "plan/…"; scripts/check_includes.py holds them to the arrows of the design.
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_link_libraries(${target} PUBLIC ${ARG_DEPS} PRIVATE $<BUILD_INTERFACE:coda_flags> ${ARG_PRIVATE_DEPS})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name})
  set_property(GLOBAL APPEND PROPERTY CODA_LIBRARIES ${target})
endfunction()

function(coda_test name)
  cmake_parse_arguments(ARG "" "" "LIBS;LABELS" ${ARGN})
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  add_executable(${name} ${name}.cc)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${name} PRIVATE coda_flags coda_test_main ${ARG_LIBS})
  target_compile_definitions(${name} PRIVATE CODA_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT 600)
endfunction()
