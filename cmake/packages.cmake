# Every library from outside, found once and at the top so that imported targets are visible
# everywhere. Module LIBS name these targets:
#
#   absl::*  fmt::fmt  spdlog::spdlog  CLI11::CLI11  nlohmann_json::nlohmann_json  Eigen3::Eigen
#   DNNL::dnnl  hwy::hwy  OpenSSL::SSL  ZLIB::ZLIB  sidereal::xxhash  sidereal::zstd
#   sidereal::re2  sidereal::farmhash  sidereal::highwayhash  sidereal::prometheus
#   sidereal_grpc (gRPC and protobuf)  Threads::Threads
set(CMAKE_FIND_PACKAGE_PREFER_CONFIG OFF)
set(THREADS_PREFER_PTHREAD_FLAG OFF)
find_package(Threads REQUIRED)

# find_package() that says how to get all of them at once.
macro(sidereal_find name)
  find_package(${name} QUIET ${ARGN})
  if(NOT ${name}_FOUND)
    message(FATAL_ERROR "${name} is missing: `./dev setup` installs all packages of the build")
  endif()
endmacro()
sidereal_find(PkgConfig)
sidereal_find(absl CONFIG)
sidereal_find(fmt CONFIG)
sidereal_find(spdlog CONFIG)
sidereal_find(CLI11 CONFIG)
sidereal_find(nlohmann_json CONFIG)
sidereal_find(Eigen3 CONFIG)
sidereal_find(OpenSSL)
sidereal_find(ZLIB)
sidereal_find(Protobuf)
find_package(gRPC CONFIG QUIET)

# The distributed config file insists on OpenCL headers, which a CPU build does not need.
find_path(SIDEREAL_DNNL_INCLUDE oneapi/dnnl/dnnl.hpp REQUIRED)
find_library(SIDEREAL_DNNL_LIBRARY dnnl REQUIRED)
add_library(DNNL::dnnl UNKNOWN IMPORTED)
set_target_properties(
  DNNL::dnnl PROPERTIES IMPORTED_LOCATION ${SIDEREAL_DNNL_LIBRARY}
                        INTERFACE_INCLUDE_DIRECTORIES ${SIDEREAL_DNNL_INCLUDE})

# Some distributions ship these without CMake files, so they are taken from pkg-config.
function(sidereal_pkg_config name module)
  string(TOUPPER ${name} prefix)
  pkg_check_modules(SIDEREAL_${prefix} REQUIRED QUIET IMPORTED_TARGET GLOBAL ${module})
  add_library(sidereal_${name} INTERFACE)
  target_link_libraries(sidereal_${name} INTERFACE PkgConfig::SIDEREAL_${prefix})
  add_library(sidereal::${name} ALIAS sidereal_${name})
endfunction()
sidereal_pkg_config(xxhash libxxhash)
sidereal_pkg_config(zstd libzstd)
sidereal_pkg_config(re2 re2)
sidereal_pkg_config(prometheus prometheus-cpp-core)

# These two come with nothing but a header and a library.
function(sidereal_plain_library name header library)
  string(TOUPPER ${name} prefix)
  find_path(SIDEREAL_${prefix}_INCLUDE ${header} REQUIRED)
  find_library(SIDEREAL_${prefix}_LIBRARY ${library} REQUIRED)
  add_library(sidereal::${name} UNKNOWN IMPORTED)
  set_target_properties(
    sidereal::${name} PROPERTIES IMPORTED_LOCATION ${SIDEREAL_${prefix}_LIBRARY}
                                 INTERFACE_INCLUDE_DIRECTORIES ${SIDEREAL_${prefix}_INCLUDE})
endfunction()
sidereal_plain_library(farmhash farmhash.h farmhash)
sidereal_plain_library(highwayhash highwayhash/c_bindings.h highwayhash)

find_package(hwy CONFIG QUIET)
if(NOT TARGET hwy::hwy)
  sidereal_pkg_config(highway libhwy)
  add_library(hwy::hwy ALIAS sidereal_highway)
endif()

find_program(SIDEREAL_PROTOC protoc REQUIRED)
find_program(SIDEREAL_GRPC_PLUGIN grpc_cpp_plugin REQUIRED)
if(TARGET gRPC::grpc++)
  add_library(sidereal_grpc INTERFACE)
  target_link_libraries(sidereal_grpc INTERFACE gRPC::grpc++)
else()
  sidereal_pkg_config(grpc grpc++)
endif()
target_link_libraries(sidereal_grpc INTERFACE protobuf::libprotobuf Threads::Threads)

if(SIDEREAL_TESTS)
  find_package(GTest REQUIRED)
endif()
if(SIDEREAL_BENCHES)
  find_package(benchmark REQUIRED CONFIG)
  # A peer of bench_transport, which does without.
  pkg_check_modules(SIDEREAL_ZMQ QUIET IMPORTED_TARGET GLOBAL libzmq)
endif()
