// A variable on a server that this program starts, trained by a session on it: y = w x, w = 3.

#include <sidereal/app/server.h>
#include <sidereal/autodiff/autodiff.h>
#include <sidereal/base/status.h>
#include <sidereal/ir/builder.h>
#include <sidereal/ops/ops.h>
#include <sidereal/service/session.h>
#include <sidereal/tensor/tensor.h>

#include <cmath>
#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

namespace {

using sidereal::Result;
using sidereal::Status;
namespace ir = sidereal::ir;
namespace app = sidereal::app;
namespace service = sidereal::service;
using sidereal::tensor::DType;
using sidereal::tensor::Shape;
using sidereal::tensor::Tensor;

Result<ir::Graph> make_graph() {
  ir::OpRegistry registry;
  sidereal::ops::register_all(&registry);
  ir::Graph graph;
  ir::Builder b(&graph, &registry);
  const auto constant = [&](float value) {
    return b.add("Const", {}, {{"value", Tensor::scalar(value)}});
  };
  const auto input = [&](const std::string& name) {
    return b.add("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", Shape{-1}}}, name);
  };
  const ir::Output w =
      b.add("Variable", {}, {{"shared_name", "w"}, {"dtype", DType::kFloat32}, {"shape", Shape{}}});
  b.add("VariableAssign", {w, constant(0)}, {}, "init");
  const ir::Output value =
      b.add("VariableRead", {w}, {{"dtype", DType::kFloat32}, {"shape", Shape{}}}, "value");
  const ir::Output error = b.add("Sub", {b.add("Mul", {input("x"), value}), input("y")});
  const ir::Output loss =
      b.add("ReduceMean", {b.add("Square", {error})}, {{"axes", std::vector<int64_t>{}}}, "loss");
  SR_RETURN_IF_ERROR(b.status());
  SR_ASSIGN_OR_RETURN(const auto gradients, sidereal::autodiff::gradients(b, loss, {value}));
  b.add("VariableAssignSub", {w, b.add("Mul", {gradients[0], constant(0.1F)})}, {}, "train");
  SR_RETURN_IF_ERROR(b.status());
  return graph;
}

Status run() {
  SR_ASSIGN_OR_RETURN(const ir::Graph graph, make_graph());
  SR_ASSIGN_OR_RETURN(const auto server, app::Server::create_local());
  SR_ASSIGN_OR_RETURN(const auto session, service::Session::create(server->target(), graph));
  SR_RETURN_IF_ERROR(session->run({}, {}, {"init"}).status());
  const Tensor x = Tensor::of(Shape{3}, std::vector<float>{1, 2, -1});
  const Tensor y = Tensor::of(Shape{3}, std::vector<float>{3, 6, -3});
  for (int step = 0; step < 50; ++step) {
    SR_RETURN_IF_ERROR(session->run({{"x", x}, {"y", y}}, {}, {"train"}).status());
  }
  SR_ASSIGN_OR_RETURN(const std::vector<Tensor> fetched, session->run({}, {"value"}, {}));
  const float w = fetched[0].data<const float>()[0];
  std::cout << "w = " << w << '\n';
  if (std::abs(w - 3) > 1e-3F) return sidereal::base::internal("w should be 3, and is {}", w);
  return session->close();
}

}  // namespace

int main() {
  const Status status = run();
  if (status.ok()) return 0;
  std::cerr << "line_fit: " << sidereal::base::message_of(status) << '\n';
  return 1;
}
