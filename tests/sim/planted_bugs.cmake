# What lists of planted bugs share. Replaces a text that the source in a variable has just once, in
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
