// What a program costs beside its arithmetic, and products of matrices beside raw oneDNN.
//
// Prints one JSON object a line; bench/graph.py puts PyTorch beside it.

#include <dnnl.hpp>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <unordered_map>
#include <vector>

#include "sidereal/base/check.h"
#include "sidereal/exec/executor.h"
#include "sidereal/exec/one_op.h"
#include "sidereal/exec/trace.h"
#include "sidereal/ir/builder.h"
#include "sidereal/ops/ops.h"
#include "sidereal/partition/by_device.h"
#include "sidereal/passes/pipeline.h"
#include "sidereal/program/compile.h"

// Of the OpenMP run time that oneDNN is built on.
extern "C" void omp_set_num_threads(int threads);

namespace {

namespace exec = sidereal::exec;
namespace ir = sidereal::ir;
namespace ops = sidereal::ops;
namespace passes = sidereal::passes;
using sidereal::tensor::DType;
using sidereal::tensor::Tensor;

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// The median of windows; an iteration of `run` is repeated until a window takes a while.
double seconds_of(const std::function<void()>& run) {
  constexpr double kWindow = 0.05;
  constexpr int kWindows = 9;
  run();
  double begin = seconds_now();
  run();
  const double once = std::max(seconds_now() - begin, 1e-7);
  const int count = std::max(1, static_cast<int>(kWindow / once));
  std::vector<double> times;
  for (int w = 0; w < kWindows; ++w) {
    begin = seconds_now();
    for (int i = 0; i < count; ++i) run();
    times.push_back((seconds_now() - begin) / count);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

/// A graph ready to run, and what it is fed with.
class Runner {
 public:
  Runner() : builder(&graph, &registry_) {}

  static ir::OpRegistry make_registry() {
    ir::OpRegistry registry;
    ops::register_all(&registry);
    return registry;
  }

  ir::Output feed(const std::string& name, const Tensor& value) {
    feeds_[name] = value;
    return ops::placeholder(builder, name, value.dtype(), value.shape());
  }

  void compile(ir::Output fetch, bool fuse) {
    exec::register_kernels(&kernels_);
    // All on one device, as a session without a cluster has it.
    for (int32_t i = 0; i < static_cast<int32_t>(graph.nodes().size()); ++i) {
      graph.mutable_node(ir::NodeId{i}).device = "/job:localhost/replica:0/task:0/device:CPU:0";
    }
    const auto plan = passes::run_passes(graph, {fetch}, {}, registry_, {.fuse = fuse});
    SR_CHECK(plan.ok(), "{}", plan.status().ToString());
    const auto parts =
        sidereal::partition::by_device(plan->graph, plan->fetches, plan->targets, registry_);
    SR_CHECK(parts.ok(), "{}", parts.status().ToString());
    SR_CHECK(parts->size() == 1);
    auto compiled = sidereal::program::compile(parts->front());
    SR_CHECK(compiled.ok(), "{}", compiled.status().ToString());
    auto bound = exec::BoundProgram::bind(*std::move(compiled), kernels_, {});
    SR_CHECK(bound.ok(), "{}", bound.status().ToString());
    bound_ = *std::move(bound);
    step_ = std::make_unique<exec::Step>(bound_.get(), &pool_, nullptr);
  }

  /// From now on every instruction of a run is written down, or no longer.
  void set_traced(bool traced) {
    if (traced && trace_ == nullptr) {
      const auto now = [] {
        return static_cast<int64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
      };
      trace_ = std::make_unique<exec::Trace>(size_t{1} << 20, now);
    }
    step_->set_trace(traced ? trace_.get() : nullptr);
  }

  void run() {
    if (trace_ != nullptr) trace_->clear();
    step_->begin(++count_);
    const std::vector<std::string>& names = bound_->program().feed_names;
    for (size_t i = 0; i < names.size(); ++i) {
      SR_CHECK(step_->feed(static_cast<int>(i), feeds_.at(names[i])).ok());
    }
    const auto progress = step_->advance();
    SR_CHECK(progress.ok(), "{}", progress.status().ToString());
    step_->end();
  }

  [[nodiscard]] size_t instructions() const { return bound_->program().instructions.size(); }

 private:
  ir::OpRegistry registry_ = make_registry();
  exec::KernelTable kernels_;
  std::unordered_map<std::string, Tensor> feeds_;
  std::unique_ptr<exec::BoundProgram> bound_;
  exec::BufferPool pool_{size_t{1} << 30};
  std::unique_ptr<exec::Trace> trace_;
  std::unique_ptr<exec::Step> step_;
  uint64_t count_ = 0;

 public:
  ir::Graph graph;
  ir::Builder builder;
};

/// A chain of additions and products of scalars, one instruction each, or fused; unfused also while
/// a trace is taken, and after one was.
void chain(int length, bool fuse) {
  Runner runner;
  ir::Output x = runner.feed("x", Tensor::scalar(1.0F));
  const ir::Output a = runner.feed("a", Tensor::scalar(0.5F));
  const ir::Output b = runner.feed("b", Tensor::scalar(0.99F));
  for (int i = 0; i < length; ++i) {
    x = i % 2 == 0 ? ops::add(runner.builder, x, a) : ops::mul(runner.builder, x, b);
  }
  runner.compile(x, fuse);
  const auto measure = [&](const char* name) {
    const double seconds = seconds_of([&] { runner.run(); });
    const nlohmann::json line = {{"case", name},
                                 {"ops", length},
                                 {"instructions", runner.instructions()},
                                 {"seconds", seconds}};
    std::printf("%s\n", line.dump().c_str());
  };
  measure(fuse ? "chain fused" : "chain");
  if (fuse) return;
  runner.set_traced(true);
  measure("chain traced");
  runner.set_traced(false);
  measure("chain, trace off again");
}

struct Product {
  int64_t m;
  int64_t k;
  int64_t n;
  bool ta;
  bool tb;
  bool layer;  ///< With bias and Relu.
};

/// One product by oneDNN: its matmul primitive with bias and Relu inside, or its sgemm.
class Raw {
 public:
  Raw(const Product& p, float* a, float* b, float* bias, float* out)
      : product_(p), a_(a), b_(b), out_(out) {
    using dnnl::memory;
    using Dims = memory::dims;
    const auto type = memory::data_type::f32;
    const memory::desc left({p.m, p.k}, type, p.ta ? Dims{1, p.m} : Dims{p.k, 1});
    const memory::desc right({p.k, p.n}, type, p.tb ? Dims{1, p.k} : Dims{p.n, 1});
    const memory::desc to({p.m, p.n}, type, Dims{p.n, 1});
    const memory::desc added({1, p.n}, type, Dims{p.n, 1});
    dnnl::primitive_attr attr;
    dnnl::post_ops post;
#if DNNL_VERSION_MAJOR >= 3
    if (p.layer) post.append_eltwise(dnnl::algorithm::eltwise_relu, 0.0F, 0.0F);
    attr.set_post_ops(post);
    const dnnl::matmul::primitive_desc desc =
        p.layer ? dnnl::matmul::primitive_desc(engine_, left, right, added, to, attr)
                : dnnl::matmul::primitive_desc(engine_, left, right, to, attr);
#else
    if (p.layer) post.append_eltwise(1.0F, dnnl::algorithm::eltwise_relu, 0.0F, 0.0F);
    attr.set_post_ops(post);
    const dnnl::matmul::desc wanted =
        p.layer ? dnnl::matmul::desc(left, right, added, to) : dnnl::matmul::desc(left, right, to);
    const dnnl::matmul::primitive_desc desc(wanted, attr, engine_);
#endif
    primitive_ = dnnl::matmul(desc);
    arguments_ = {{DNNL_ARG_SRC, memory(left, engine_, a)},
                  {DNNL_ARG_WEIGHTS, memory(right, engine_, b)},
                  {DNNL_ARG_DST, memory(to, engine_, out)}};
    if (p.layer) arguments_.insert({DNNL_ARG_BIAS, memory(added, engine_, bias)});
  }

  void run() {
    primitive_.execute(stream_, arguments_);
    stream_.wait();
  }

  void run_sgemm() {
    const Product& p = product_;
    dnnl_sgemm(p.ta ? 'T' : 'N', p.tb ? 'T' : 'N', p.m, p.n, p.k, 1.0F, a_, p.ta ? p.m : p.k, b_,
               p.tb ? p.k : p.n, 0.0F, out_, p.n);
  }

 private:
  Product product_;
  float* a_;
  float* b_;
  float* out_;
  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  dnnl::matmul primitive_;
  std::unordered_map<int, dnnl::memory> arguments_;
};

Tensor filled(int64_t rows, int64_t columns) {
  Tensor out = Tensor::empty(DType::kFloat32, {rows, columns});
  float value = 0;
  for (float& x : out.data<float>()) x = (value = value > 1 ? -1 : value + 0.37F);
  return out;
}

void product(const Product& p) {
  omp_set_num_threads(1);
  Runner runner;
  const Tensor a = p.ta ? filled(p.k, p.m) : filled(p.m, p.k);
  const Tensor b = p.tb ? filled(p.n, p.k) : filled(p.k, p.n);
  const Tensor bias = filled(1, p.n).reshaped({p.n});
  ir::Output y = ops::mat_mul(runner.builder, runner.feed("a", a), runner.feed("b", b), p.ta, p.tb);
  if (p.layer) {
    y = ops::relu(runner.builder, ops::bias_add(runner.builder, y, runner.feed("bias", bias)));
  }
  runner.compile(y, true);
  Tensor out = Tensor::empty(DType::kFloat32, {p.m, p.n});
  Raw raw(p, a.data<float>().data(), b.data<float>().data(), bias.data<float>().data(),
          out.data<float>().data());
  std::vector<double> ours;
  std::vector<double> primitive;
  std::vector<double> sgemm;
  constexpr int kRounds = 5;
  for (int r = 0; r < kRounds; ++r) {
    ours.push_back(seconds_of([&] { runner.run(); }));
    primitive.push_back(seconds_of([&] { raw.run(); }));
    sgemm.push_back(seconds_of([&] { raw.run_sgemm(); }));
  }
  const auto median = [](std::vector<double>& times) {
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
  };
  const nlohmann::json line = {{"case", "product"},
                               {"m", p.m},
                               {"k", p.k},
                               {"n", p.n},
                               {"transposed", std::string(p.ta ? "a" : "") + (p.tb ? "b" : "")},
                               {"layer", p.layer},
                               {"flops", 2.0 * static_cast<double>(p.m * p.k * p.n)},
                               {"ours", median(ours)},
                               {"primitive", median(primitive)},
                               {"sgemm", median(sgemm)}};
  std::printf("%s\n", line.dump().c_str());
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("What a program costs beside its arithmetic");
  std::string only = "all";
  int length = 1000;
  app.add_option("--only", only, "chain, products or all");
  app.add_option("--ops", length, "length of the chain");
  CLI11_PARSE(app, argc, argv);
  if (only != "products") {
    chain(length, false);
    chain(length, true);
  }
  if (only != "chain") {
    // The layers of a tower of batch 1024, and the products of their gradients.
    for (const Product& p : std::vector<Product>{{1024, 512, 1024, false, false, true},
                                                 {1024, 1024, 512, false, false, true},
                                                 {1024, 624, 400, false, false, true},
                                                 {1024, 400, 400, false, false, true},
                                                 {51200, 256, 80, false, false, true},
                                                 {1024, 512, 1024, false, true, false},
                                                 {512, 1024, 1024, true, false, false},
                                                 {400, 1024, 400, true, false, false}}) {
      product(p);
    }
  }
  return 0;
}
