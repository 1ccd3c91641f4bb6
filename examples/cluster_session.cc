// TensorFlow's distributed model from C++: a ps and a worker, servers of one cluster; a graph whose
// variable lies on the ps and whose work is done on the worker; a session that trains it.
// Here both servers are in this process; as processes of their own they are started with
// `sidereal serve --job ps --task 0 --cluster cluster.json`.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sidereal/app/server.h"
#include "sidereal/autodiff/autodiff.h"
#include "sidereal/base/status.h"
#include "sidereal/cluster/cluster_spec.h"
#include "sidereal/ir/builder.h"
#include "sidereal/master/placement.h"
#include "sidereal/ops/ops.h"
#include "sidereal/service/session.h"
#include "sidereal/tensor/tensor.h"

namespace {

using sidereal::Result;
using sidereal::Status;
namespace ir = sidereal::ir;
namespace master = sidereal::master;
namespace app = sidereal::app;
namespace service = sidereal::service;
using sidereal::tensor::DType;
using sidereal::tensor::Shape;
using sidereal::tensor::Tensor;

constexpr int64_t kRows = 256;
constexpr int64_t kFeatures = 4;

/// y = x w: w is on the ps, all else on the worker, whose session it is.
Result<ir::Graph> make_graph(const ir::OpRegistry& registry) {
  ir::Graph graph;
  ir::Builder b(&graph, &registry);
  const auto constant = [&](Tensor value) {
    return b.add("Const", {}, {{"value", std::move(value)}});
  };
  const Shape shape = {kFeatures, 1};
  const ir::Output w =
      b.add("Variable", {}, {{"shared_name", "w"}, {"dtype", DType::kFloat32}, {"shape", shape}});
  if (w.valid()) graph.mutable_node(w.node).device = "/job:ps/task:0";
  b.add("VariableAssign", {w, constant(Tensor::of(shape, std::vector<float>(kFeatures)))}, {},
        "init");

  const ir::Output x =
      b.add("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", Shape{-1, kFeatures}}}, "x");
  const ir::Output y =
      b.add("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", Shape{-1, 1}}}, "y");
  const ir::Output weights =
      b.add("VariableRead", {w}, {{"dtype", DType::kFloat32}, {"shape", shape}});
  const ir::Output error = b.add("Sub", {b.add("MatMul", {x, weights}), y});
  const ir::Output loss =
      b.add("ReduceMean", {b.add("Square", {error})}, {{"axes", std::vector<int64_t>{}}}, "loss");
  SR_RETURN_IF_ERROR(b.status());
  SR_ASSIGN_OR_RETURN(const auto gradients, sidereal::autodiff::gradients(b, loss, {weights}));
  const ir::Output step = b.add("Mul", {gradients[0], constant(Tensor::scalar(0.05F))});
  b.add("VariableAssignSub", {w, step}, {}, "train");
  SR_RETURN_IF_ERROR(b.status());
  return graph;
}

/// Rows x, and y = x (1, 2, 3, 4).
std::pair<Tensor, Tensor> make_data() {
  std::vector<float> x;
  std::vector<float> y;
  for (int64_t row = 0; row < kRows; ++row) {
    float sum = 0;
    for (int64_t i = 0; i < kFeatures; ++i) {
      x.push_back(std::sin(static_cast<float>(1 + row * kFeatures + i)));
      sum += x.back() * static_cast<float>(i + 1);
    }
    y.push_back(sum);
  }
  return {Tensor::of(Shape{kRows, kFeatures}, x), Tensor::of(Shape{kRows, 1}, y)};
}

/// A ps and a worker at ports of this machine that are free: two servers get them from the system,
/// and give them back. Other clusters know their ports.
Result<sidereal::cluster::ClusterSpec> free_cluster() {
  SR_ASSIGN_OR_RETURN(const auto one, app::Server::create_local());
  SR_ASSIGN_OR_RETURN(const auto other, app::Server::create_local());
  const size_t scheme = std::string("grpc://").size();
  sidereal::cluster::ClusterSpec cluster;
  SR_RETURN_IF_ERROR(cluster.add_job("ps", std::vector{one->target().substr(scheme)}));
  SR_RETURN_IF_ERROR(cluster.add_job("worker", std::vector{other->target().substr(scheme)}));
  return cluster;
}

Status run() {
  app::ServerOptions options;
  SR_ASSIGN_OR_RETURN(options.cluster, free_cluster());
  options.job = "ps";
  SR_ASSIGN_OR_RETURN(const std::unique_ptr<app::Server> ps, app::Server::create(options));
  options.job = "worker";
  SR_ASSIGN_OR_RETURN(const std::unique_ptr<app::Server> worker, app::Server::create(options));

  ir::OpRegistry registry;
  sidereal::ops::register_all(&registry);
  SR_ASSIGN_OR_RETURN(const ir::Graph graph, make_graph(registry));
  SR_ASSIGN_OR_RETURN(
      const ir::Graph placed,
      master::place_on_cluster(graph, worker->cluster(), {.master = worker->task()}, registry));
  fmt::print("{}\n", master::placement_lines(placed));

  SR_ASSIGN_OR_RETURN(const auto session, service::Session::create(worker->target(), graph));
  SR_RETURN_IF_ERROR(session->run({}, {}, {"init"}).status());
  const auto [x, y] = make_data();
  float loss = 0;
  for (int step = 0; step < 100; ++step) {
    SR_ASSIGN_OR_RETURN(const std::vector<Tensor> fetched,
                        session->run({{"x", x}, {"y", y}}, {"loss"}, {"train"}));
    loss = fetched[0].data<const float>()[0];
    if (step % 20 == 0) fmt::print("step {:3}: loss {:.6f}\n", step, loss);
  }
  fmt::print("loss {:.6f}\n", loss);
  if (!(loss < 0.01F)) return sidereal::base::internal("the loss did not fall: {}", loss);
  return session->close();
}

}  // namespace

int main() {
  const Status status = run();
  if (status.ok()) return 0;
  fmt::print(stderr, "cluster_session: {}\n", sidereal::base::message_of(status));
  return 1;
}
