# Run by `cmake --install`: copies the headers of SIDEREAL_PUBLIC_HEADERS and all of ours that these
# include, from SIDEREAL_SOURCE to SIDEREAL_INCLUDE below the prefix. Fails when that reaches a
# header that nobody outside has: one that protoc made, or of a folder internal/ or testing/.
set(todo ${SIDEREAL_PUBLIC_HEADERS})
set(done "")
while(todo)
  list(POP_FRONT todo header)
  list(APPEND done ${header})
  if(NOT EXISTS ${SIDEREAL_SOURCE}/${header} OR header MATCHES "(^|/)(internal|testing)/")
    message(FATAL_ERROR "a public header includes sidereal/${header}, which is not for users")
  endif()
  get_filename_component(folder ${header} DIRECTORY)
  file(INSTALL ${SIDEREAL_SOURCE}/${header}
       DESTINATION ${CMAKE_INSTALL_PREFIX}/${SIDEREAL_INCLUDE}/${folder})
  file(STRINGS ${SIDEREAL_SOURCE}/${header} includes REGEX "^#include \"sidereal/")
  foreach(include IN LISTS includes)
    string(REGEX REPLACE "^#include \"sidereal/(.*)\".*" "\\1" include "${include}")
    if(NOT include IN_LIST done AND NOT include IN_LIST todo)
      list(APPEND todo ${include})
    endif()
  endforeach()
endwhile()
