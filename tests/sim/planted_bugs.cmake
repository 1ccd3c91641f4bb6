# What lists of planted bugs share.

# Replaces a text that the source in a variable has just once, in
# that variable; `where` and `name` say which bug is wrong if it has not.
function(replace_once variable text becomes where name)
  string(REPLACE "${text}" "" without "${${variable}}")
  string(LENGTH "${${variable}}" before)
  string(LENGTH "${without}" after)
  string(LENGTH "${text}" length)
  math(EXPR rest "${before} - ${after} - ${length}")
  if(NOT rest EQUAL 0)
    message(FATAL_ERROR "${where}: ${name}: the source does not have once: ${text}")
  endif()
  string(REPLACE "${text}" "${becomes}" planted "${${variable}}")
  set(${variable} "${planted}" PARENT_SCOPE)
endfunction()

# Plants a bug, which can be there or not, into a source: PLANTED(name), in `becomes`, is whether it
# is. `list` is where it stands: the name of its file without ".cmake".
function(plant_into list name source text becomes)
  get_filename_component(file ${source} NAME_WE)
  if(NOT DEFINED ${list}_${file})
    set(path ${PROJECT_SOURCE_DIR}/src/sidereal/${source})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${path})
    file(READ ${path} ${list}_${file})
    set(${list}_files ${${list}_files} ${file} PARENT_SCOPE)
  endif()
  replace_once(${list}_${file} "${text}" "${becomes}" ${list}.cmake ${name})
  set(${list}_${file} "${${list}_${file}}" PARENT_SCOPE)
  set(${list}_names "${${list}_names}PLANTED_BUG(${name})\n" PARENT_SCOPE)
endfunction()

# The test that finds them: the sources with bugs are linked before the libraries, whose own objects
# they replace.
function(add_planted_bugs_test list test)
  set(folder ${CMAKE_CURRENT_BINARY_DIR}/${list})
  set(names "${${list}_names}")
  file(CONFIGURE OUTPUT ${folder}/planted_bugs.inc CONTENT "@names@" @ONLY)
  set(sources)
  foreach(file IN LISTS ${list}_files)
    set(planted "${${list}_${file}}")
    file(
      CONFIGURE
      OUTPUT ${folder}/${file}.cc
      CONTENT [[// Generated: a source with bugs that can be switched on.
#include "tests/sim/planted_bugs.h"
@planted@]]
      @ONLY)
    list(APPEND sources ${folder}/${file}.cc)
  endforeach()
  engine_test(
    NAME ${list}_test
    SOURCES ${test} ${sources}
    DEPS sim_parts)
  if(TARGET ${list}_test)
    target_include_directories(${list}_test PRIVATE ${folder})
  endif()
endfunction()
