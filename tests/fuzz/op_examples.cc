#include "sidereal/kernels/optimizer_rules.h"
#include "tests/fuzz/one_op.h"

/// Instructions that run, of ops that random inputs and attributes hardly ever fit.
namespace sidereal::fuzz {
namespace {

using tensor::DType;
using tensor::Shape;
using tensor::Tensor;
using Ints = std::vector<int64_t>;
using Texts = std::vector<std::string>;

constexpr DType kF32 = DType::kFloat32;
constexpr DType kI64 = DType::kInt64;
constexpr DType kI32 = DType::kInt32;
constexpr DType kText = DType::kString;

/// 0, 1/4, 1/2, ...
Tensor f32(const Shape& shape) {
  Tensor out = Tensor::zeros(kF32, shape);
  for (int64_t i = 0; i < out.num_elements(); ++i) {
    out.data<float>()[i] = static_cast<float>(i) / 4;
  }
  return out;
}
Tensor i64(Ints values) {
  const auto n = static_cast<int64_t>(values.size());
  return Tensor::of<int64_t>({n}, std::move(values));
}
Tensor i32(std::vector<int32_t> values) {
  const auto n = static_cast<int64_t>(values.size());
  return Tensor::of<int32_t>({n}, std::move(values));
}
Tensor texts(Texts values) {
  const auto n = static_cast<int64_t>(values.size());
  return Tensor::strings(Shape{n}, std::move(values));
}
Tensor handle(const std::string& name) { return Tensor::strings(Shape(), Texts{name}); }
Tensor step() { return Tensor::scalar(1.0); }
Tensor rate() { return Tensor::scalar(0.5F); }

std::vector<Example> make_images() {
  const ir::AttrMap same = {{"padding", std::string("same")}};
  ir::AttrMap pool = same;
  pool["ksize"] = Ints{2, 2};
  const Tensor image = f32({1, 4, 4, 2});
  const Tensor filter = f32({2, 2, 2, 3});
  const Tensor depthwise = f32({2, 2, 2, 1});
  const Tensor made = f32({1, 4, 4, 3});
  return {{"Conv2D", same, {image, filter}, {kF32}},
          {"Conv2DGradFilter", same, {made, image, filter}, {kF32}},
          {"Conv2DGradInput", same, {made, filter, image}, {kF32}},
          {"DepthwiseConv2D", same, {image, depthwise}, {kF32}},
          {"DepthwiseConv2DGradFilter", same, {image, image, depthwise}, {kF32}},
          {"DepthwiseConv2DGradInput", same, {image, depthwise, image}, {kF32}},
          {"AvgPool", pool, {image}, {kF32}},
          {"AvgPoolGrad", pool, {image, image}, {kF32}},
          {"MaxPool", pool, {image}, {kF32, kI64}}};
}

std::vector<Example> make_layers() {
  const Tensor x = f32({3, 4});
  const Tensor row = f32({4});
  const Tensor column = f32({3});
  return {{"BatchNorm", {}, {x, row, row}, {kF32, kF32, kF32}},
          {"BatchNormGrad", {}, {x, x, row, row, row}, {kF32, kF32, kF32}},
          {"LayerNorm", {}, {x, row, row}, {kF32, kF32, kF32}},
          {"LayerNormGrad", {}, {x, x, row, column, column}, {kF32, kF32, kF32}},
          {"FusedElementwise", {{"code", Texts{"Add %0 %1", "Neg %2"}}}, {x, x}, {kF32}},
          {"FusedMatMul", {{"relu", true}}, {x, f32({4, 2}), f32({2})}, {kF32}},
          {"MatMulSplit",
           {{"begins", Ints{0, 2}}, {"sizes", Ints{2, 3}}},
           {x, f32({5, 4})},
           {kF32, kF32}},
          {"ConcatMatMul", {{"bias", true}}, {x, f32({3, 2}), f32({6, 2}), f32({2})}, {kF32}},
          {"TransposedConcatMatMul", {}, {x, f32({3, 2}), f32({3, 5})}, {kF32}},
          {"FmInteractionGrad", {}, {f32({2}), f32({2, 3, 4})}, {kF32}},
          {"TopK", {{"k", int64_t{2}}}, {x}, {kF32, kI32}},
          {"InTopK", {{"k", int64_t{2}}}, {x, i64({0, 1, 2})}, {DType::kBool}},
          {"SparseSoftmaxCrossEntropyWithLogits", {}, {x, i64({0, 1, 3})}, {kF32, kF32}}};
}

std::vector<Example> make_arrays() {
  const Tensor x = f32({3, 4});
  const ir::AttrMap mirror = {{"paddings", Ints{1, 1, 0, 2}}, {"mode", std::string("reflect")}};
  const ir::AttrMap part = {{"begin", Ints{1, 0}}, {"size", Ints{2, -1}}};
  const ir::AttrMap strided = {
      {"begin", Ints{2, 0}}, {"end", Ints{0, 4}}, {"strides", Ints{-1, 2}}};
  const ir::AttrMap first = {
      {"shape", Shape{5, 2}}, {"kind", std::string("uniform")}, {"b", 1.0},
      {"seed", int64_t{7}},   {"name", std::string("w")},       {"part", int64_t{1}},
      {"parts", int64_t{2}}};
  const Tensor ids = i64({0, 2, 2});
  const Tensor segments = i64({0, 0, 1});
  return {
      {"MirrorPad", mirror, {x}, {kF32}},
      {"MirrorPadGrad", mirror, {f32({5, 6}), x}, {kF32}},
      {"Slice", part, {x}, {kF32}},
      {"SliceGrad", part, {f32({2, 4}), x}, {kF32}},
      {"StridedSlice", strided, {x}, {kF32}},
      {"StridedSliceGrad", strided, {f32({2, 2}), x}, {kF32}},
      {"Pad", {{"paddings", Ints{1, 1, 0, 2}}}, {x, rate()}, {kF32}},
      {"OneHot", {{"depth", int64_t{3}}}, {i64({0, 2}), rate(), rate()}, {kF32}},
      {"GatherGrad", {}, {f32({2, 4}), i64({0, 2}), x}, {kF32}},
      {"TileGrad", {{"multiples", Ints{2, 1}}}, {f32({6, 4}), x}, {kF32}},
      {"InitialValue", first, {}, {kF32}},
      {"Range", {}, {rate(), Tensor::scalar(4.0F), rate()}, {kF32}},
      {"ScatterNd", {{"shape", Ints{4, 4}}}, {Tensor::of<int64_t>({3, 1}, {0, 3, 3}), x}, {kF32}},
      {"TensorScatterAdd", {}, {x, Tensor::of<int64_t>({2, 1}, {0, 2}), f32({2, 4})}, {kF32}},
      {"SparseSegmentSum", {}, {x, ids, segments}, {kF32}},
      {"SparseSegmentMean", {}, {x, ids, segments}, {kF32}},
      {"SparseSegmentSqrtN", {{"num_segments", int64_t{3}}}, {x, ids, segments}, {kF32}}};
}

std::vector<Example> make_texts() {
  const std::string record = "\n\x0f\n\r\n\1v\x12\x08\x1a\x06\n\4\1\2\3\4";
  return {{"DecodeCsv", {}, {texts({"1,a", ",b"}), f32({1}), texts({""})}, {kF32, kText}},
          {"DecodeRaw", {{"out_type", kI32}}, {texts({"abcdefgh"})}, {kI32}},
          {"ParseExample",
           {{"sparse_keys", Texts{"v"}}, {"sparse_types", Texts{"int64"}}},
           {texts({record, ""})},
           {kI64, kI64, kI64}},
          {"StringSplit", {{"separator", std::string(",")}}, {texts({"a,b", ""})}, {kText, kI64}},
          {"RegexFullMatch", {{"pattern", std::string("a|b")}}, {texts({"a"})}, {DType::kBool}},
          {"StringToHashBucket", {{"num_buckets", int64_t{10}}}, {texts({"a"})}, {kI64}},
          {"CategoryId",
           {{"field", int64_t{3}}, {"num_buckets", int64_t{10}}},
           {texts({"a", ""})},
           {kI64}},
          {"StringToHashBucketStrong",
           {{"num_buckets", int64_t{10}}, {"key", Ints{1, 2}}},
           {texts({"a", "b"})},
           {kI64}},
          {"Substr", {}, {texts({"abc", "def"}), i64({0, -2}), i64({2, 1})}, {kText}}};
}

std::vector<Example> make_lookups() {
  const ir::AttrMap joined = {
      {"counts", Ints{2, 0}}, {"axis", int64_t{1}}, {"shape", Ints{9}}, {"out_type", kF32}};
  ir::AttrMap in_parts = {
      {"shards", int64_t{2}}, {"counts", Ints{2}}, {"axis", int64_t{1}}, {"shape", Ints{8}}};
  const Tensor ids = Tensor::of<int64_t>({2, 2}, {7, 8, 7, 9});
  const Tensor places = i32({0, 1, 0, 2});
  constexpr int64_t kShard = int64_t{1} << 40;  // See kernels::kPositionShift.
  const Tensor position = i64({0, kShard, 1});
  const ir::AttrMap dim = {{"dim", int64_t{4}}};
  return {
      {"GatherConcat",
       joined,
       {f32({5, 4}), Tensor::of<int64_t>({2, 2}, {0, 4, 1, 1}), f32({2, 1})},
       {kF32}},
      {"GatherPartsConcat", in_parts, {ids, position, places, f32({2, 4}), f32({1, 4})}, {kF32}},
      {"GatherParts", dim, {ids, position, places, f32({2, 4}), f32({1, 4})}, {kF32}},
      {"SumParts", dim, {f32({4, 4}), position, places, i64({3, 4}), i64({4})}, {kF32, kF32}},
      {"Unique", {}, {i64({3, 19, 3})}, {kI64, kI32}},
      {"Route",
       {{"rows", int64_t{20}}, {"lanes", Ints{1, 1}}},
       {i64({3, 19, 0})},
       {kI64, kI64, kI64}},
      {"UniqueRoute",
       {{"of", Ints{0}}, {"rows", Ints{20}}, {"lanes", Ints{2}}},
       {i64({3, 19, 3})},
       {kI32, kI64, kI64, kI64}}};
}

/// Attributes that name a rule of optimizers, with all of its parameters as they stand.
ir::AttrMap attrs_of(const kernels::Rule& rule) {
  ir::AttrMap attrs = {{"kind", std::string(rule.name)}};
  for (const kernels::RuleParameter& parameter : rule.parameters) {
    if (parameter.name == "learning_rate") continue;
    if (parameter.range == kernels::Range::kFlag) {
      attrs[std::string(parameter.name)] = parameter.standard != 0;
    } else {
      attrs[std::string(parameter.name)] = parameter.standard;
    }
  }
  return attrs;
}

std::vector<Example> make_updates() {
  const ir::AttrMap sgd = {{"kind", std::string("sgd")}};
  ir::AttrMap joined = sgd;
  joined["indices"] = int64_t{1};
  joined["columns"] = Ints{1};
  joined["widths"] = Ints{4};
  const Tensor w = f32({3, 2});
  const Tensor rows = i64({2, 0, 2});
  const Tensor wide = Tensor::zeros(DType::kFloat64, Shape{3, 2});
  std::vector<Example> out = {
      {"UpdateDense", sgd, {wide, wide, step(), rate()}, {DType::kFloat64}},
      {"UpdateRows", sgd, {wide, rows, wide, step(), rate()}, {DType::kFloat64}},
      {"UpdateJoinedRows", joined, {w, rows, f32({3, 4}), step(), rate()}, {kF32}},
      {"VariableUpdateDense", sgd, {handle("v"), w, step(), rate()}, {}},
      {"VariableUpdateNorms", sgd, {handle("v"), w, step(), rate()}, {DType::kFloat64}},
      {"VariableUpdateRows", sgd, {handle("v"), rows, f32({3, 2}), step(), rate()}, {}}};
  for (const kernels::Rule* rule : kernels::all_rules()) {
    const kernels::UpdateRule made = kernels::UpdateRule::of(rule->name);
    std::vector<Tensor> dense = {w, w, step(), rate()};
    std::vector<Tensor> of_rows = {w, rows, f32({3, 2}), step(), rate()};
    for (int i = 0; i < made.num_slots(); ++i) {
      const Tensor slot = made.slot_shape(i, w.shape()).rank() == 1 ? f32({3}) : w;
      dense.push_back(slot);
      of_rows.push_back(slot);
    }
    const std::vector<DType> types(static_cast<size_t>(made.num_slots()) + 1, kF32);
    out.push_back({"UpdateNorms", attrs_of(*rule), dense, {DType::kFloat64}});
    if (rule->uses_norms) {
      std::vector<Tensor> with_norms = dense;
      with_norms.push_back(Tensor::zeros(DType::kFloat64, Shape{2}));
      out.push_back({"UpdateDense", attrs_of(*rule), std::move(with_norms), types});
    }
    out.push_back({"UpdateDense", attrs_of(*rule), std::move(dense), types});
    out.push_back({"UpdateRows", attrs_of(*rule), std::move(of_rows), types});
  }
  return out;
}

std::vector<Example> make_resources() {
  const ir::AttrMap component = {{"dtypes", Texts{"float32"}}};
  ir::AttrMap entries = {{"dtypes", Texts{"int64", "float32"}}};
  ir::AttrMap named = component;
  named["shared_name"] = std::string("new");
  const Tensor keys = i64({1, 5});
  const Tensor one = Tensor::scalar<int64_t>(1);
  const Tensor texts = Tensor::strings(Shape{2}, std::vector<std::string>{"one", "other"});
  const Tensor none = Tensor::scalar<int64_t>(0);
  const Tensor third = Tensor::strings(Shape(), std::vector<std::string>{"third"});
  return {{"Accumulator", named, {}, {kText}},
          {"AccumulatorApply", {}, {handle("a"), one, f32({2})}, {DType::kBool}},
          {"AccumulatorSetGlobalStep", {}, {handle("a"), one}, {DType::kBool}},
          {"AccumulatorAwaitStep", {}, {handle("a"), one}, {kI64}},
          {"AccumulatorRestart", {}, {handle("a"), one, one}, {DType::kBool}},
          {"AccumulatorLeave", {}, {handle("a"), one}, {DType::kBool}},
          {"AccumulatorTake", component, {handle("a"), one}, {kF32}},
          {"StepBarrier", {{"shared_name", std::string("new barrier")}}, {}, {kText}},
          {"StepBarrierRestart", {}, {handle("w"), one, one, texts}, {DType::kBool}},
          {"StepBarrierAwait", {}, {handle("w"), one}, {kI64}},
          {"StepBarrierAdvance", {}, {handle("w"), one}, {DType::kBool}},
          {"StepBarrierLeave", {}, {handle("w"), one, one}, {DType::kBool}},
          {"StepBarrierJoin", {}, {handle("w"), third, none}, {kI64}},
          {"StepBarrierExpel", {}, {handle("w"), one}, {kText}},
          {"QueueEnqueue", {}, {handle("q"), f32({2})}, {DType::kBool}},
          {"QueueDequeue", component, {handle("q")}, {kF32}},
          {"QueueIsClosed", {}, {handle("q")}, {DType::kBool}},
          {"TableExport", entries, {handle("t")}, {kI64, kF32}},
          {"TableFind", {}, {handle("t"), keys, Tensor::scalar(0.5F)}, {kF32}},
          {"TableInsert", {}, {handle("t"), keys, f32({2})}, {DType::kBool}},
          {"TableRemove", {}, {handle("t"), keys}, {DType::kBool}},
          {"VariableGather", {{"dtype", kF32}}, {handle("v"), i64({2, 0})}, {kF32}},
          {"VariableAssignAdd", {}, {handle("v"), f32({3, 2})}, {kF32}},
          {"VariableAssignSub", {}, {handle("v"), f32({3, 2})}, {kF32}},
          {"VariableScatterAdd", {}, {handle("v"), i64({2, 0}), f32({2, 2})}, {kF32}},
          {"VariableScatterSub", {}, {handle("v"), i64({2, 0}), f32({2, 2})}, {kF32}},
          {"VariableScatterUpdate", {}, {handle("v"), i64({2, 0}), f32({2, 2})}, {kF32}}};
}

}  // namespace

const std::vector<Example>& examples() {
  static const std::vector<Example>& all = *[] {
    auto* made = new std::vector<Example>;
    for (const auto& group : {make_images(), make_layers(), make_arrays(), make_texts(),
                              make_lookups(), make_updates(), make_resources()}) {
      made->insert(made->end(), group.begin(), group.end());
    }
    return made;
  }();
  return all;
}

}  // namespace sidereal::fuzz
