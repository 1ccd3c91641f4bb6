#pragma once

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sidereal/app/server.h"
#include "sidereal/app/testing/ports.h"
#include "sidereal/ir/builder.h"
#include "sidereal/ops/ops.h"
#include "sidereal/service/session.h"
#include "sidereal/tensor/tensor.h"

/// For tests: graphs whose nodes name devices, and clusters of servers in this process.
namespace sidereal::app {

/// A graph under construction.
class Model {
 public:
  Model() { ops::register_all(&registry_); }

  ir::Output add(std::string_view op, const std::vector<ir::Output>& inputs, ir::AttrMap attrs = {},
                 std::string_view name = {}, std::string_view device = {}) {
    const ir::Output out = builder_.add(op, inputs, std::move(attrs), name);
    EXPECT_TRUE(builder_.status().ok()) << builder_.status();
    graph_.mutable_node(out.node).device = device;
    return out;
  }
  /// A node without outputs.
  void add_node(std::string_view op, const std::vector<ir::Output>& inputs, ir::AttrMap attrs,
                std::string_view name, std::string_view device = {}) {
    const ir::NodeId node = builder_.add_node(op, inputs, std::move(attrs), {}, name);
    EXPECT_TRUE(builder_.status().ok()) << builder_.status();
    graph_.mutable_node(node).device = device;
  }
  ir::Output constant(std::vector<float> values, std::string_view name = {},
                      std::string_view device = {}) {
    const auto n = static_cast<int64_t>(values.size());
    return add("Const", {}, {{"value", tensor::Tensor::of(tensor::Shape{n}, values)}}, name,
               device);
  }
  ir::Output placeholder(std::string_view name, tensor::DType dtype = tensor::DType::kFloat32,
                         const tensor::Shape& shape = {-1}) {
    return add("Placeholder", {}, {{"dtype", dtype}, {"shape", shape}}, name);
  }
  [[nodiscard]] const ir::Graph& graph() const { return graph_; }

 private:
  ir::OpRegistry registry_;
  ir::Graph graph_;
  ir::Builder builder_{&graph_, &registry_};
};

inline std::unique_ptr<Server> local_server() {
  auto server = Server::create_local();
  EXPECT_TRUE(server.ok()) << server.status();
  return *std::move(server);
}

/// A session that is not made within a minute never will be; a test that waited on would be ended
/// without a word.
inline service::SessionOptions patient() {
  service::SessionOptions out;
  out.connect_timeout = std::chrono::seconds(60);
  return out;
}

inline std::vector<float> floats(const tensor::Tensor& value) {
  const auto data = value.data<const float>();
  return {data.begin(), data.end()};
}

/// A protocol in the name of a test.
inline std::string test_name(const ::testing::TestParamInfo<cluster::Protocol>& info) {
  constexpr std::array<const char*, 4> kNames = {"grpc", "grpcpp", "star_server",
                                                 "star_server_lite"};
  return kNames[static_cast<size_t>(info.param)];
}

/// How the servers of a cluster are started. Value type.
struct ClusterKind {
  cluster::Protocol protocol = cluster::Protocol::kGrpc;
  int lanes = 1;
};
inline std::string kind_name(const ::testing::TestParamInfo<ClusterKind>& info) {
  std::string name = test_name({info.param.protocol, info.index});
  if (info.param.lanes > 1) name += "_" + std::to_string(info.param.lanes) + "_lanes";
  return name;
}

/// Servers of one cluster, at ports of their own.
class TestCluster {
 public:
  /// Starts `count` tasks of job "w".
  explicit TestCluster(int count, cluster::Protocol protocol = cluster::Protocol::kGrpc)
      : TestCluster(count, ClusterKind{.protocol = protocol}) {}
  TestCluster(int count, ClusterKind kind) : TestCluster(count, options_of(kind)) {}
  /// The same, with all else that `options` say.
  TestCluster(int count, const ServerOptions& options)
      : ports_(count), options_(options), servers_(static_cast<size_t>(count)) {
    EXPECT_TRUE(options_.cluster.add_job("w", ports_.addresses()).ok());
    options_.job = "w";
    for (int i = 0; i < count; ++i) start(i);
  }

  void start(int task) {
    options_.task = task;
    auto server = Server::create(options_);
    ASSERT_TRUE(server.ok()) << server.status();
    servers_[static_cast<size_t>(task)] = *std::move(server);
  }
  void stop(int task) { servers_[static_cast<size_t>(task)] = nullptr; }
  [[nodiscard]] std::string target(int task = 0) const {
    return servers_[static_cast<size_t>(task)]->target();
  }
  [[nodiscard]] const ServerOptions& options() const { return options_; }

 private:
  static ServerOptions options_of(ClusterKind kind) {
    ServerOptions out;
    out.protocol = kind.protocol;
    out.lanes = kind.lanes;
    return out;
  }

  const ReservedPorts ports_;
  ServerOptions options_;
  std::vector<std::unique_ptr<Server>> servers_;
};

}  // namespace sidereal::app
