# Tests of the house rather than of the code: include arrows, documents, headers that stand alone, and coda used from
# outside (installed, and as a subdirectory). Included last by tests/CMakeLists.txt, when all coda_test()s are known.
# Label `house`: run once, in the release build; never under the sanitizers.

find_package(Python3 REQUIRED COMPONENTS Interpreter)

function(coda_house_test name)
  add_test(NAME ${name} COMMAND ${ARGN})
  set_tests_properties(${name} PROPERTIES LABELS house TIMEOUT 600)
endfunction()

foreach(script check_includes check_docs)
  coda_house_test(${script} ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/scripts/${script}.py)
  coda_house_test(${script}_self_test ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/scripts/${script}.py --self-test)
endforeach()

# The faults of scripts/mutants.py still stand in the sources; scripts/mutate.py plants them (minutes, so not here).
coda_house_test(mutants_are_found ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/scripts/mutate.py --list)

# Each public header compiled alone: one that needs another to be included first breaks the build.
file(GLOB public_headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/coda/*.h)
set(alone)
foreach(header IN LISTS public_headers)
  get_filename_component(stem ${header} NAME_WE)
  set(source ${CMAKE_CURRENT_BINARY_DIR}/alone/${stem}.cc)
  file(CONFIGURE OUTPUT ${source} CONTENT "#include \"coda/${stem}.h\"\n#include \"coda/${stem}.h\"\n")
  list(APPEND alone ${source})
endforeach()
add_library(coda_headers_alone OBJECT ${alone})
target_include_directories(coda_headers_alone PRIVATE ${PROJECT_SOURCE_DIR}/include)
target_link_libraries(coda_headers_alone PRIVATE coda_flags)
# Only the front end matters.
target_compile_options(coda_headers_alone PRIVATE -O0)

# A user's project (tests/example_project): against an installed coda, and with coda as a subdirectory.
foreach(mode install subdirectory)
  coda_house_test(example_project_${mode} ${CMAKE_COMMAND}
    -DMODE=${mode} -DCODA_SOURCE=${PROJECT_SOURCE_DIR} -DCODA_BUILD=${PROJECT_BINARY_DIR}
    -DWORK=${CMAKE_CURRENT_BINARY_DIR}/example_${mode} -DCXX=${CMAKE_CXX_COMPILER} -DGENERATOR=${CMAKE_GENERATOR}
    -P ${CMAKE_CURRENT_SOURCE_DIR}/example_project/run_test.cmake)
endforeach()

# What runs several threads at once; scripts/test.sh runs these under ThreadSanitizer.
set(threaded_tests thread_pool_test attention_test llama_cpu_test cpu_cases_test cpu_plan_test trainer_test)
foreach(name IN LISTS threaded_tests)
  if(TEST ${name})
    set_property(TEST ${name} APPEND PROPERTY LABELS threads)
  endif()
endforeach()
