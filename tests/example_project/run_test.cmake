# cmake -P script of the tests example_project_install and example_project_subdirectory. MODE `install`: installs the
# build CODA_BUILD into a fresh prefix, then configures, builds and runs the example against that prefix alone. MODE
# `subdirectory`: configures the example with the source tree inside it, and builds its first library.
function(run)
  execute_process(COMMAND ${ARGV} COMMAND_ECHO STDOUT RESULT_VARIABLE code)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "failed with ${code}: ${ARGV}")
  endif()
endfunction()

file(REMOVE_RECURSE ${WORK})
set(configure ${CMAKE_COMMAND} -S ${CODA_SOURCE}/tests/example_project -B ${WORK}/build -G ${GENERATOR}
  -DCMAKE_CXX_COMPILER=${CXX})

if(MODE STREQUAL "install")
  run(${CMAKE_COMMAND} --install ${CODA_BUILD} --prefix ${WORK}/prefix)
  foreach(path include/coda/program.h share/coda/programs)
    if(NOT EXISTS ${WORK}/prefix/${path})
      message(FATAL_ERROR "not installed: ${path}")
    endif()
  endforeach()
  run(${configure} -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH=${WORK}/prefix)
  run(${CMAKE_COMMAND} --build ${WORK}/build)
  run(${WORK}/build/example)
else()
  run(${configure} -DCODA_SOURCE=${CODA_SOURCE})
  # Nothing of coda's own house may leak into a user's build: no tests, no command line, no install rules, no build type.
  file(STRINGS ${WORK}/build/CMakeCache.txt leaks REGEX "^(CODA_BUILD_TESTS|CODA_BUILD_APP|CODA_INSTALL|CODA_WERROR):BOOL=ON")
  file(STRINGS ${WORK}/build/CMakeCache.txt type REGEX "^CMAKE_BUILD_TYPE:STRING=.+")
  if(leaks OR type)
    message(FATAL_ERROR "leaked into the user's build: ${leaks} ${type}")
  endif()
  run(${CMAKE_COMMAND} --build ${WORK}/build --target coda_base)
endif()
