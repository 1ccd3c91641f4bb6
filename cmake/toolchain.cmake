# Compiler launcher, linker and the flags every target of ours is compiled with.

# Global rather than per target: a precompiled header is only accepted by objects compiled with the
# same code-generation flags, and static libraries end up in the Python extension.
# -pthread for the same reason: it defines _REENTRANT, which gRPC users would otherwise differ in.
add_compile_options(-fPIC -pthread)

if(SIDEREAL_MARCH STREQUAL "native")
  set(SIDEREAL_CPU_FLAGS -march=native)
elseif(SIDEREAL_MARCH STREQUAL "baseline")
  set(SIDEREAL_CPU_FLAGS -mavx2 -mfma)
elseif(SIDEREAL_MARCH)
  set(SIDEREAL_CPU_FLAGS -march=${SIDEREAL_MARCH})
endif()
add_compile_options(${SIDEREAL_CPU_FLAGS})

if(SIDEREAL_SANITIZE)
  add_compile_options(-fsanitize=${SIDEREAL_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${SIDEREAL_SANITIZE})
  if(SIDEREAL_SANITIZE MATCHES "undefined")
    add_compile_options(-fno-sanitize-recover=undefined)
  endif()
endif()

if(SIDEREAL_TRAP)
  # The thread sanitizer's pass, for atomic operations alone, and without its library.
  set(trap_flags -fsanitize=thread)
  foreach(part memory-accesses func-entry-exit memintrinsics)
    list(APPEND trap_flags "SHELL:-mllvm -tsan-instrument-${part}=0")
  endforeach()
  add_compile_options(${trap_flags})
  link_libraries(sidereal_atomic_calls) # tests/step_path
endif()

find_program(SIDEREAL_CCACHE ccache)
if(SIDEREAL_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # -march=native means another thing on another processor, which ccache cannot see: the options the
  # compiler derives from it are written to a file that is part of every cache key.
  set(cpu_file ${CMAKE_BINARY_DIR}/cpu_target.txt)
  execute_process(
    COMMAND ${CMAKE_CXX_COMPILER} ${SIDEREAL_CPU_FLAGS} -E -dM -x c++ /dev/null
    OUTPUT_VARIABLE cpu_macros
    ERROR_QUIET)
  file(CONFIGURE OUTPUT ${cpu_file} CONTENT "${cpu_macros}" @ONLY)
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1
      CCACHE_EXTRAFILES=${cpu_file} CCACHE_SLOPPINESS=pch_defines,time_macros ${SIDEREAL_CCACHE})
endif()

find_program(SIDEREAL_MOLD mold)
if(SIDEREAL_MOLD)
  include(CheckCXXSourceCompiles)
  set(CMAKE_REQUIRED_LINK_OPTIONS -fuse-ld=mold)
  check_cxx_source_compiles("int main() {}" SIDEREAL_MOLD_WORKS)
  unset(CMAKE_REQUIRED_LINK_OPTIONS)
  if(SIDEREAL_MOLD_WORKS)
    add_link_options(-fuse-ld=mold)
  endif()
endif()

add_library(sidereal_flags INTERFACE)
target_compile_options(sidereal_flags INTERFACE -Wall -Wextra -Wno-psabi)
if(SIDEREAL_WERROR)
  target_compile_options(sidereal_flags INTERFACE -Werror -Wno-error=invalid-pch)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 reports these wrongly on inlined standard library and intrinsics code; the tidy preset
  # and the sanitizers find the real ones.
  target_compile_options(
    sidereal_flags INTERFACE -Wno-restrict -Wno-maybe-uninitialized -Wno-error=array-bounds
                             -Wno-error=stringop-overflow -Wno-error=stringop-overread)
endif()
if(SIDEREAL_DCHECK)
  target_compile_definitions(sidereal_flags INTERFACE SR_DCHECK_ON=1)
endif()

# Of tests. Nobody guides a fuzzer by what they cover: counting it takes an eighth of their compile
# time, and programs of the fuzzer do not link them.
add_library(sidereal_test_flags INTERFACE)
# And what runs for a moment is compiled in three quarters of the time; the product as it is.
target_compile_options(sidereal_test_flags INTERFACE $<$<CONFIG:RelWithDebInfo>:-O1>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # With that GCC 12 takes what was moved from for unset, here and there.
  target_compile_options(sidereal_test_flags INTERFACE -Wno-error=uninitialized)
endif()
if(SIDEREAL_SANITIZE MATCHES "fuzzer-no-link")
  target_compile_options(sidereal_test_flags INTERFACE -fno-sanitize=fuzzer-no-link)
endif()
