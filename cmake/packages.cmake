# Every library from outside, found once and at the top so that imported targets are visible
# everywhere. Module LIBS name these targets:
#
#   absl::*  fmt::fmt  spdlog::spdlog  CLI11::CLI11  nlohmann_json::nlohmann_json
#   sidereal::products (oneDNN and Eigen)  hwy::hwy  OpenSSL::SSL  ZLIB::ZLIB  sidereal::xxhash
#   sidereal::zstd  sidereal::re2  sidereal::farmhash  sidereal::highwayhash  sidereal::prometheus
#   sidereal::grpc (gRPC and protobuf)  Threads::Threads
set(CMAKE_FIND_PACKAGE_PREFER_CONFIG OFF)
set(THREADS_PREFER_PTHREAD_FLAG OFF)
include(${CMAKE_CURRENT_LIST_DIR}/dependencies.cmake)
sidereal_find(CLI11 CONFIG)

macro(sidereal_program variable name)
  find_program(${variable} ${name})
  if(NOT ${variable})
    sidereal_missing("the program ${name}")
  endif()
endmacro()
sidereal_program(SIDEREAL_PROTOC protoc)
sidereal_program(SIDEREAL_GRPC_PLUGIN grpc_cpp_plugin)

if(SIDEREAL_TESTS)
  sidereal_find(GTest)
endif()
if(SIDEREAL_BENCHES)
  sidereal_find(benchmark CONFIG)
  # A peer of bench_transport, which does without.
  pkg_check_modules(SIDEREAL_ZMQ QUIET IMPORTED_TARGET GLOBAL libzmq)
endif()
