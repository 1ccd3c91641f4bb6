# engine_module(), engine_binary(), engine_python_module() and sidereal_proto().
include(${CMAKE_CURRENT_LIST_DIR}/modules.cmake)
include(GoogleTest)

set(SIDEREAL_GENERATED_DIR ${CMAKE_BINARY_DIR}/gen)

# All modules a module may name in DEPS: the table's row and everything below it.
function(sidereal_allowed_deps module out)
  set(todo ${SIDEREAL_MAY_USE_${module}})
  set(done "")
  while(todo)
    list(POP_FRONT todo next)
    if(NOT next IN_LIST done)
      list(APPEND done ${next})
      list(APPEND todo ${SIDEREAL_MAY_USE_${next}})
    endif()
  endwhile()
  set(${out} ${done} PARENT_SCOPE)
endfunction()

# Everything one of our own compiled targets needs, whatever its kind.
function(sidereal_target_defaults target)
  target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:sidereal_flags>)
  if(SIDEREAL_PCH)
    target_precompile_headers(${target} REUSE_FROM sidereal_pch)
  endif()
endfunction()

# The same of a target of tests, which includes GoogleTest.
function(sidereal_test_defaults target)
  target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:sidereal_flags> sidereal_test_flags)
  if(SIDEREAL_PCH)
    target_precompile_headers(${target} REUSE_FROM ${SIDEREAL_TEST_PCH})
  endif()
endfunction()

# sidereal_proto(TARGET FILE [MESSAGES] [IMPORTS library ...])
#
# Compiles src/sidereal/<module>/x.proto (FILE is relative to the calling directory) with protoc
# and, unless it has MESSAGES only, the gRPC plugin. IMPORTS are libraries of what it imports.
# If TARGET exists, the generated library, TARGET_x_proto, is linked to it; otherwise the library is
# named TARGET. Include the results as "sidereal/<module>/x.pb.h" and "...x.grpc.pb.h"; those of a
# file outside of src by their path in the project, such as "bench/ps/x.pb.h".
function(sidereal_proto target file)
  cmake_parse_arguments(P "MESSAGES" "" "IMPORTS" ${ARGN})
  get_filename_component(proto ${file} ABSOLUTE)
  set(root ${PROJECT_SOURCE_DIR}/src)
  file(RELATIVE_PATH relative ${root} ${proto})
  if(relative MATCHES "^\\.\\./")
    set(root ${PROJECT_SOURCE_DIR})
    file(RELATIVE_PATH relative ${root} ${proto})
  endif()
  string(REGEX REPLACE "\\.proto$" "" stem ${relative})
  set(base ${SIDEREAL_GENERATED_DIR}/${stem})
  set(sources ${base}.pb.cc)
  set(headers ${base}.pb.h)
  set(options --cpp_out=${SIDEREAL_GENERATED_DIR})
  if(NOT P_MESSAGES)
    list(APPEND sources ${base}.grpc.pb.cc)
    list(APPEND headers ${base}.grpc.pb.h)
    list(APPEND options --grpc_out=${SIDEREAL_GENERATED_DIR}
                        --plugin=protoc-gen-grpc=${SIDEREAL_GRPC_PLUGIN})
  endif()
  file(MAKE_DIRECTORY ${SIDEREAL_GENERATED_DIR})
  add_custom_command(
    OUTPUT ${sources} ${headers}
    COMMAND ${SIDEREAL_PROTOC} -I ${root} ${options} ${proto}
    DEPENDS ${proto}
    COMMENT "protoc ${relative}"
    VERBATIM)
  string(MAKE_C_IDENTIFIER generate_${stem} generate)
  add_custom_target(${generate} DEPENDS ${headers})
  add_dependencies(sidereal_generated ${generate})
  set(library ${target})
  if(TARGET ${target})
    get_filename_component(name ${stem} NAME)
    set(library ${target}_${name}_proto)
  endif()
  add_library(${library} STATIC ${sources})
  add_dependencies(${library} ${generate})
  target_include_directories(${library} SYSTEM
                             PUBLIC $<BUILD_INTERFACE:${SIDEREAL_GENERATED_DIR}>)
  target_compile_options(${library} PRIVATE -w)
  target_link_libraries(${library} PUBLIC ${P_IMPORTS})
  if(P_MESSAGES)
    target_link_libraries(${library} PUBLIC protobuf::libprotobuf)
  else()
    target_link_libraries(${library} PUBLIC sidereal::grpc)
  endif()
  if(NOT library STREQUAL target)
    target_link_libraries(${target} PUBLIC ${library})
  endif()
endfunction()

# `alone` is a GoogleTest filter: tests that need the processors for themselves.
function(sidereal_add_test_binary name module sources libraries alone)
  add_executable(${name} ${sources})
  sidereal_test_defaults(${name})
  target_link_libraries(${name} PRIVATE ${libraries} GTest::gmock GTest::gtest_main)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  set(options DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60 WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set(properties LABELS ${module} TIMEOUT ${SIDEREAL_TEST_TIMEOUT})
  if(alone)
    gtest_discover_tests(${name} ${options} TEST_FILTER "${alone}" PROPERTIES ${properties}
                                                                   RUN_SERIAL TRUE)
    gtest_discover_tests(${name} ${options} TEST_FILTER "-${alone}" PROPERTIES ${properties})
  else()
    gtest_discover_tests(${name} ${options} PROPERTIES ${properties})
  endif()
  add_dependencies(sidereal_tests ${name})
endfunction()

# The library of a module's folder testing/.
function(sidereal_add_testing_library module sources libraries)
  set(library sidereal_${module}_testing)
  list(APPEND libraries GTest::gmock GTest::gtest)
  if(sources)
    add_library(${library} STATIC ${sources})
    sidereal_test_defaults(${library})
    target_link_libraries(${library} PUBLIC ${libraries})
  else()
    add_library(${library} INTERFACE)
    target_link_libraries(${library} INTERFACE ${libraries})
  endif()
  if(SIDEREAL_HEADER_CHECK)
    file(GLOB headers RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} CONFIGURE_DEPENDS testing/*.h)
    sidereal_add_header_check(${module}_testing ${CMAKE_CURRENT_SOURCE_DIR} "${headers}" ${library})
  endif()
endfunction()

# A source includes the header of its name first (tools/tidy.py), and clang-tidy compiles it without
# the precompiled header: what has such a source is not compiled once more.
function(sidereal_add_header_check name directory headers libraries)
  set(sources "")
  foreach(header IN LISTS headers)
    string(REGEX REPLACE "\\.h$" ".cc" beside ${header})
    if(EXISTS ${directory}/${beside})
      continue()
    endif()
    file(RELATIVE_PATH relative ${PROJECT_SOURCE_DIR}/src ${directory}/${header})
    string(MAKE_C_IDENTIFIER ${relative} id)
    set(source ${SIDEREAL_GENERATED_DIR}/header_check/${id}.cc)
    file(CONFIGURE OUTPUT ${source} CONTENT "#include \"${relative}\"\n")
    list(APPEND sources ${source})
  endforeach()
  if(sources)
    # No precompiled header here: it would hide a missing #include.
    add_library(sidereal_headers_${name} OBJECT ${sources})
    target_link_libraries(sidereal_headers_${name} PRIVATE sidereal_flags ${libraries})
    add_dependencies(sidereal_headers sidereal_headers_${name})
  endif()
endfunction()

# engine_module(NAME base DOC "one line" SOURCES a.cc [HEADERS a.h] [DEPS tensor ...]
#               [LIBS fmt::fmt] [PRIVATE_LIBS ...] [TESTS a_test.cc] [TESTING testing/lanes.cc]
#               [TESTS_ALONE "Floods.*"] [TEST_DEPS sys] [TEST_LIBS ...] [BENCHES a_bench.cc])
#
# Makes the static library sidereal_<name> (alias sidereal::<name>), the test binary <name>_test
# (each case known to ctest, labelled with the module), the benchmark <name>_bench, and, with
# SIDEREAL_HEADER_CHECK, sidereal_headers_<name>, which compiles headers without a source alone.
# TESTS_ALONE is a GoogleTest filter: ctest runs what it names while it runs nothing else, as does a
# test that takes all processors and measures what is left for others. HEADERS defaults to the
# folder's *.h. DEPS must be allowed by cmake/modules.cmake; TEST_DEPS may name any module that is
# configured before.
#
# What tests share is in the folder testing/, and TESTING are the sources in it. With such a folder
# there is the library sidereal_<name>_testing, which the module's own tests link, and those of
# others with <name>_testing in TEST_DEPS; DEPS cannot name it. It uses what the tests use.
function(engine_module)
  cmake_parse_arguments(
    PARSE_ARGV 0 M "" "NAME;DOC;TESTS_ALONE"
    "SOURCES;HEADERS;DEPS;LIBS;PRIVATE_LIBS;TESTS;TESTING;TEST_DEPS;TEST_LIBS;BENCHES")
  if(M_UNPARSED_ARGUMENTS OR NOT M_NAME OR NOT M_DOC)
    message(FATAL_ERROR "engine_module: needs NAME and DOC; "
                        "not understood: ${M_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT M_NAME IN_LIST SIDEREAL_KNOWN_MODULES)
    message(FATAL_ERROR "engine_module: '${M_NAME}' is not in cmake/modules.cmake")
  endif()
  sidereal_allowed_deps(${M_NAME} allowed)
  set(libraries ${M_LIBS})
  foreach(dep IN LISTS M_DEPS)
    if(NOT dep IN_LIST allowed)
      message(FATAL_ERROR "module '${M_NAME}' may not use '${dep}': see cmake/modules.cmake")
    endif()
    if(NOT TARGET sidereal_${dep})
      message(FATAL_ERROR "module '${M_NAME}' uses '${dep}', which is not configured; "
                          "add it to SIDEREAL_MODULES or write src/sidereal/${dep}/CMakeLists.txt")
    endif()
    list(APPEND libraries sidereal_${dep})
  endforeach()

  set(library sidereal_${M_NAME})
  if(M_SOURCES)
    add_library(${library} STATIC ${M_SOURCES})
    sidereal_target_defaults(${library})
    target_include_directories(${library} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>)
    target_link_libraries(${library} PUBLIC ${libraries} PRIVATE ${M_PRIVATE_LIBS})
  else()
    add_library(${library} INTERFACE)
    target_include_directories(${library} INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>)
    target_link_libraries(${library} INTERFACE ${libraries})
  endif()
  add_library(sidereal::${M_NAME} ALIAS ${library})

  if(SIDEREAL_TESTS)
    set(test_libraries ${library} ${M_TEST_LIBS})
    foreach(dep IN LISTS M_TEST_DEPS)
      list(APPEND test_libraries sidereal_${dep})
    endforeach()
    if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/testing)
      sidereal_add_testing_library(${M_NAME} "${M_TESTING}" "${test_libraries}")
      list(PREPEND test_libraries ${library}_testing)
    elseif(M_TESTING)
      message(FATAL_ERROR "module '${M_NAME}' has no folder testing/ for ${M_TESTING}")
    endif()
    if(M_TESTS)
      sidereal_add_test_binary(${M_NAME}_test ${M_NAME} "${M_TESTS}" "${test_libraries}"
                               "${M_TESTS_ALONE}")
    endif()
  endif()
  if(SIDEREAL_BENCHES AND M_BENCHES)
    add_executable(${M_NAME}_bench ${M_BENCHES})
    sidereal_target_defaults(${M_NAME}_bench)
    target_link_libraries(${M_NAME}_bench PRIVATE ${library} ${M_TEST_LIBS}
                                                  benchmark::benchmark_main)
  endif()
  if(SIDEREAL_HEADER_CHECK)
    if(NOT M_HEADERS)
      file(GLOB M_HEADERS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} CONFIGURE_DEPENDS *.h)
    endif()
    sidereal_add_header_check(${M_NAME} ${CMAKE_CURRENT_SOURCE_DIR} "${M_HEADERS}" ${library})
  endif()

  string(REPLACE ";" "\", \"" deps "${M_DEPS}")
  if(M_DEPS)
    set(deps "\"${deps}\"")
  endif()
  get_property(started GLOBAL PROPERTY SIDEREAL_MODULES_JSON SET)
  set(row "  {\"name\": \"${M_NAME}\", \"doc\": \"${M_DOC}\", \"deps\": [${deps}]}")
  if(started)
    string(PREPEND row ",\n")
  endif()
  set_property(GLOBAL APPEND_STRING PROPERTY SIDEREAL_MODULES_JSON "${row}")
endfunction()

# engine_binary(NAME sidereal SOURCES main.cc [DEPS app ...] [LIBS ...] [INSTALL])
#
# An executable in build/<preset>/bin. INSTALL puts it into the wheel as sidereal/bin/<name>.
function(engine_binary)
  cmake_parse_arguments(B "INSTALL" "NAME" "SOURCES;DEPS;LIBS" ${ARGN})
  add_executable(${B_NAME} ${B_SOURCES})
  sidereal_target_defaults(${B_NAME})
  foreach(dep IN LISTS B_DEPS)
    target_link_libraries(${B_NAME} PRIVATE sidereal_${dep})
  endforeach()
  target_link_libraries(${B_NAME} PRIVATE ${B_LIBS})
  add_dependencies(sidereal_programs ${B_NAME})
  if(B_INSTALL AND DEFINED SKBUILD)
    install(TARGETS ${B_NAME} RUNTIME DESTINATION sidereal/bin)
  endif()
endfunction()

# engine_test(NAME x_test SOURCES x_test.cc [DEPS app ...] [LIBS ...])
#
# A GoogleTest binary outside src, for tests that cross modules (tests/, examples/).
function(engine_test)
  cmake_parse_arguments(T "" "NAME" "SOURCES;DEPS;LIBS" ${ARGN})
  if(SIDEREAL_TESTS)
    set(libraries ${T_LIBS})
    foreach(dep IN LISTS T_DEPS)
      list(APPEND libraries sidereal_${dep})
    endforeach()
    string(REGEX REPLACE "_test$" "" label ${T_NAME})
    sidereal_add_test_binary(${T_NAME} ${label} "${T_SOURCES}" "${libraries}" "")
  endif()
endfunction()

# engine_bench(NAME bench_x SOURCES bench_x.cc [DEPS app ...] [LIBS ...])
#
# A whole-system benchmark in bench/: `./dev bench x` runs it, or runs x.py, which may start it.
function(engine_bench)
  cmake_parse_arguments(B "" "NAME" "SOURCES;DEPS;LIBS" ${ARGN})
  add_executable(${B_NAME} ${B_SOURCES})
  sidereal_target_defaults(${B_NAME})
  foreach(dep IN LISTS B_DEPS)
    target_link_libraries(${B_NAME} PRIVATE sidereal_${dep})
  endforeach()
  target_link_libraries(${B_NAME} PRIVATE ${B_LIBS})
  add_dependencies(sidereal_bench ${B_NAME})
endfunction()

# engine_python_module(NAME _native SOURCES module.cc [DEPS train ...])
#
# A nanobind extension in build/<preset>/python/sidereal, and in the wheel's package folder.
function(engine_python_module)
  cmake_parse_arguments(P "" "NAME" "SOURCES;DEPS;LIBS" ${ARGN})
  nanobind_add_module(${P_NAME} NB_STATIC ${P_SOURCES})
  target_include_directories(${P_NAME} PRIVATE ${PROJECT_SOURCE_DIR}/src)
  foreach(dep IN LISTS P_DEPS)
    target_link_libraries(${P_NAME} PRIVATE sidereal_${dep})
  endforeach()
  target_link_libraries(${P_NAME} PRIVATE ${P_LIBS})
  set_target_properties(${P_NAME} PROPERTIES LIBRARY_OUTPUT_DIRECTORY
                                             ${CMAKE_BINARY_DIR}/python/sidereal)
  add_dependencies(sidereal_programs ${P_NAME})
  if(DEFINED SKBUILD)
    install(TARGETS ${P_NAME} LIBRARY DESTINATION sidereal)
  endif()
endfunction()

# The DEPS a module's CMakeLists.txt names, read without running it, so that a module whose
# dependencies do not exist yet can be left out instead of failing the whole tree.
function(sidereal_declared_deps module out)
  file(READ ${PROJECT_SOURCE_DIR}/src/sidereal/${module}/CMakeLists.txt text)
  string(REGEX REPLACE "#[^\n]*" "" text "${text}")
  set(deps "")
  if(text MATCHES "[ \t\n]DEPS[ \t\n]+([a-z_ \t\n]+)")
    string(REGEX MATCHALL "[a-z_]+" deps "${CMAKE_MATCH_1}")
  endif()
  set(${out} ${deps} PARENT_SCOPE)
endfunction()

function(sidereal_write_modules_json)
  get_property(rows GLOBAL PROPERTY SIDEREAL_MODULES_JSON)
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/modules.json CONTENT "[\n${rows}\n]\n" @ONLY)
endfunction()
