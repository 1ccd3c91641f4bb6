#include "sidereal/ir/component_specs.h"
#include "sidereal/ops/args.h"
#include "sidereal/ops/internal.h"

/// Ops on what steps share by name: queues, accumulators, mutable tables; lookups in constant
/// tables; and functions of the embedding program. A resource is known by its handle, a scalar
/// string that its first op makes.
namespace sidereal::ops::internal {
namespace {

using ir::AttrSpec;

Status infer_handle(const InferContext& c) { return put(c, DType::kString, Shape()); }

Status require_handle(const InferContext& c) {
  SR_RETURN_IF_ERROR(require_dtype(c, 0, DType::kString));
  return require_rank(c, 0, 0);
}

/// Inference of an op on a handle whose only output is a scalar of `dtype`.
std::function<Status(const InferContext&)> scalar_of_handle(DType dtype) {
  return [dtype](const InferContext& c) -> Status {
    SR_RETURN_IF_ERROR(require_handle(c));
    return put(c, dtype, Shape());
  };
}

Status infer_made_of_components(const InferContext& c) {
  SR_RETURN_IF_ERROR(ir::component_specs(c.attrs).status());
  return infer_handle(c);
}

/// A batch has one dimension more in front.
Shape batched(const Shape& row, int64_t count) {
  if (!row.has_rank()) return row;
  Shape out{count};
  for (const int64_t extent : row.dims()) out.append(extent);
  return out;
}

Status infer_dequeue(const InferContext& c) {
  SR_RETURN_IF_ERROR(require_handle(c));
  const bool many = ir::attr_or(c.attrs, "many", false);
  if (many != (c.inputs.size() == 2)) {
    return base::invalid_argument("a number of elements is needed for a batch, and only there");
  }
  if (many) SR_RETURN_IF_ERROR(require_index(c, 1));
  SR_ASSIGN_OR_RETURN(const auto specs, ir::component_specs(c.attrs));
  for (const ir::TensorSpec& spec : specs) {
    SR_RETURN_IF_ERROR(put(c, spec.dtype, many ? batched(spec.shape, -1) : spec.shape));
  }
  return {};
}

Status infer_next(const InferContext& c) {
  SR_RETURN_IF_ERROR(require_handle(c));
  SR_ASSIGN_OR_RETURN(const auto specs, ir::component_specs(c.attrs));
  for (const ir::TensorSpec& spec : specs) SR_RETURN_IF_ERROR(put(c, spec.dtype, spec.shape));
  return {};
}

Status infer_next_or_end(const InferContext& c) {
  SR_RETURN_IF_ERROR(require_handle(c));
  SR_RETURN_IF_ERROR(put(c, DType::kBool, Shape()));
  return infer_next(c);
}

Status infer_iterator_restore(const InferContext& c) {
  SR_RETURN_IF_ERROR(require_handle(c));
  SR_RETURN_IF_ERROR(require_dtype(c, 1, DType::kString));
  SR_RETURN_IF_ERROR(require_rank(c, 1, 0));
  return put(c, DType::kBool, Shape());
}

Status infer_accumulator_take(const InferContext& c) {
  SR_RETURN_IF_ERROR(require_handle(c));
  SR_RETURN_IF_ERROR(require_index(c, 1));
  SR_ASSIGN_OR_RETURN(const auto specs, ir::component_specs(c.attrs));
  for (const ir::TensorSpec& spec : specs) SR_RETURN_IF_ERROR(put(c, spec.dtype, spec.shape));
  return {};
}

Status infer_accumulator_apply(const InferContext& c) {
  SR_RETURN_IF_ERROR(require_handle(c));
  SR_RETURN_IF_ERROR(require_index(c, 1));
  return put(c, DType::kBool, Shape());
}

Status infer_accumulator_await(const InferContext& c) {
  SR_RETURN_IF_ERROR(require_handle(c));
  SR_RETURN_IF_ERROR(require_index(c, 1));
  return put(c, DType::kInt64, Shape());
}

Status infer_accumulator_restart(const InferContext& c) {
  SR_RETURN_IF_ERROR(require_index(c, 2));
  return infer_accumulator_apply(c);
}

Status infer_barrier_restart(const InferContext& c) {
  SR_RETURN_IF_ERROR(require_index(c, 2));
  SR_RETURN_IF_ERROR(require_dtype(c, 3, DType::kString));
  SR_RETURN_IF_ERROR(require_rank(c, 3, 1));
  return infer_accumulator_apply(c);
}

Status infer_barrier_join(const InferContext& c) {
  SR_RETURN_IF_ERROR(require_handle(c));
  SR_RETURN_IF_ERROR(require_dtype(c, 1, DType::kString));
  SR_RETURN_IF_ERROR(require_rank(c, 1, 0));
  SR_RETURN_IF_ERROR(require_index(c, 2));
  return put(c, DType::kInt64, Shape());
}

Status infer_barrier_expel(const InferContext& c) {
  SR_RETURN_IF_ERROR(require_handle(c));
  SR_RETURN_IF_ERROR(require_index(c, 1));
  return put(c, DType::kString, Shape({-1}));
}

Status infer_table_find(const InferContext& c) {
  SR_RETURN_IF_ERROR(require_handle(c));
  const Shape& keys = c.inputs[1].shape;
  const Shape& row = c.inputs[2].shape;
  Shape out = keys.has_rank() && row.has_rank() ? keys : Shape::unknown_rank();
  for (int i = 0; out.has_rank() && i < row.rank(); ++i) out.append(row.dim(i));
  SR_RETURN_IF_ERROR(ir::check_shape(out));
  return put(c, c.inputs[2].dtype, out);
}

Status infer_table_export(const InferContext& c) {
  SR_RETURN_IF_ERROR(require_handle(c));
  SR_ASSIGN_OR_RETURN(const auto specs, ir::component_specs(c.attrs));
  if (specs.size() != 2) return base::invalid_argument("a table has keys and values");
  for (const ir::TensorSpec& spec : specs) {
    SR_RETURN_IF_ERROR(put(c, spec.dtype, batched(spec.shape, -1)));
  }
  return {};
}

/// (table keys [n], table values [n], keys, default []).
Status infer_lookup(const InferContext& c) {
  SR_RETURN_IF_ERROR(require_rank(c, 0, 1));
  SR_RETURN_IF_ERROR(require_rank(c, 1, 1));
  SR_RETURN_IF_ERROR(require_rank(c, 3, 0));
  const DType key = c.inputs[0].dtype;
  if (key != DType::kString && !sets::kIndices.has(key)) {
    return base::invalid_argument("keys are {}; they must be string, int32 or int64",
                                  tensor::name_of(key));
  }
  SR_RETURN_IF_ERROR(require_dtype(c, 2, key));
  SR_RETURN_IF_ERROR(require_dtype(c, 3, c.inputs[1].dtype));
  SR_RETURN_IF_ERROR(merge_shapes(c.inputs[0].shape, c.inputs[1].shape).status());
  return put(c, c.inputs[1].dtype, c.inputs[2].shape);
}

Status infer_host_function(const InferContext& c) {
  SR_RETURN_IF_ERROR(ir::get_attr<int64_t>(c.attrs, "function").status());
  SR_ASSIGN_OR_RETURN(const auto specs, ir::component_specs(c.attrs));
  for (const ir::TensorSpec& spec : specs) SR_RETURN_IF_ERROR(put(c, spec.dtype, spec.shape));
  return {};
}

/// The gradient is a function of the host too: of the inputs, then the gradients of the outputs.
Status grad_host_function(GradContext& c) {
  const auto gradient = ir::attr_or<int64_t>(c.node.attrs, "gradient", -1);
  if (gradient < 0) {
    return base::unimplemented("HostFunction '{}' has no gradient", c.node.name);
  }
  std::vector<Output> inputs;
  append_inputs(c, 0, &inputs);
  for (size_t i = 0; i < c.node.outputs.size(); ++i) {
    if (is_real(c.node.outputs[i].dtype)) inputs.push_back(grad_or_zeros(c, i));
  }
  std::vector<ir::TensorSpec> specs;
  std::vector<size_t> wrt;
  for (size_t i = 0; i < c.node.inputs.size(); ++i) {
    const ir::TensorSpec& spec = c.builder.spec(c.node.inputs[i]);
    if (!is_real(spec.dtype)) continue;
    wrt.push_back(i);
    specs.push_back(spec);
  }
  ir::AttrMap attrs = ir::component_attrs(specs);
  attrs["function"] = gradient;
  const ir::NodeId node = c.builder.add_node("HostFunction", inputs, std::move(attrs));
  for (size_t i = 0; i < wrt.size(); ++i) {
    (*c.input_grads)[wrt[i]] = {node, static_cast<int32_t>(i)};
  }
  return {};
}

const AttrSpec kSharedName = {"shared_name", "string", true,
                              "Name under which the steps of a task find it."};
const AttrSpec kContainer = {"container", "string", false,
                             "Container of the name; the default one, \"\", if absent."};
const AttrSpec kDtypes = {"dtypes", "strings", true, "Names of the dtypes, one per component."};
const AttrSpec kShapes = {"shapes", "ints", false,
                          "Shapes of the components: of each its rank (-1: unknown), then its "
                          "extents (-1: unknown)."};
const AttrSpec kMany = {"many", "bool", false, "Of a batch along dimension 0; false if absent."};

/// Those that take anything take a handle first.
void add(OpRegistry* registry, const char* name, const char* doc, int min_inputs, int max_inputs,
         std::vector<AttrSpec> attrs, std::function<Status(const InferContext&)> infer) {
  registry->add({.name = name,
                 .doc = doc,
                 .min_inputs = min_inputs,
                 .max_inputs = max_inputs,
                 .attrs = std::move(attrs),
                 .infer = std::move(infer),
                 .differentiable = false,
                 .stateful = true,
                 .effect = true,
                 .handle_inputs = min_inputs > 0 ? 1 : 0});
}

void register_queues(OpRegistry* registry) {
  add(registry, "Queue", "The handle of the queue of this name, which is made when there is none.",
      0, 0,
      {kSharedName,
       kContainer,
       kDtypes,
       kShapes,
       {"order", "string", false, "'fifo', 'shuffled' or 'priority'; 'fifo' if absent."},
       {"capacity", "int", false, "Elements it holds at most; -1, no bound, if absent."},
       {"min_after_dequeue", "int", false, "Elements an open shuffled queue keeps back."},
       {"seed", "int", false, "Of the order of a shuffled queue."},
       {"pad", "bool", false, "Whether batches are filled up to the longest of them."}},
      infer_made_of_components);
  add(registry, "QueueEnqueue",
      "(handle, components...): puts an element in, or the rows of a batch; waits while the queue "
      "is full. True.",
      2, -1, {kMany}, scalar_of_handle(DType::kBool));
  add(registry, "QueueDequeue",
      "(handle, [count]): takes an element out, or a batch of `count`; waits until there are as "
      "many. The components.",
      1, 2,
      {kDtypes,
       kShapes,
       kMany,
       {"up_to", "bool", false, "Whether a closed queue may give fewer; false if absent."}},
      infer_dequeue);
  add(registry, "QueueClose", "Lets nothing in any more. True.", 1, 1,
      {{"cancel_pending", "bool", false, "Ends what waits to go in; false if absent."}},
      scalar_of_handle(DType::kBool));
  add(registry, "QueueSize", "How many elements are in, int32.", 1, 1, {},
      scalar_of_handle(DType::kInt32));
  add(registry, "QueueIsClosed", "Whether the queue is closed.", 1, 1, {},
      scalar_of_handle(DType::kBool));
}

void register_iterators(OpRegistry* registry) {
  add(registry, "DatasetIterator",
      "(values...): the handle of the iterator of this name, which begins to read the dataset when "
      "there is none.",
      0, -1,
      {kSharedName,
       kContainer,
       {"definition", "string", true,
        "The dataset, as the text of a graph; its numbered values are the inputs."},
       {"of_call", "bool", false,
        "Whether it is a new one each time, which ends with its handle; false if absent."}},
      infer_handle);
  add(registry, "IteratorNext",
      "The components of the next element; waits until it is there. OUT_OF_RANGE at the end.", 1, 1,
      {kDtypes, kShapes}, infer_next);
  add(registry, "IteratorNextOrEnd",
      "Whether there is a next element, and its components, which are zeros, and no rows where "
      "their number is open, at the end; waits until it is there.",
      1, 1, {kDtypes, kShapes}, infer_next_or_end);
  add(registry, "IteratorSave",
      "Where an iterator is, as bytes for IteratorRestore; what it holds ahead is among them.", 1,
      1, {}, scalar_of_handle(DType::kString));
  add(registry, "IteratorRestore",
      "(handle, position): goes where an iterator of an equal dataset was. INVALID_ARGUMENT for "
      "bytes that are no such position: it stays where it is. True.",
      2, 2, {}, infer_iterator_restore);
}

void register_destroy(OpRegistry* registry) {
  add(registry, "DestroyResource",
      "Forgets the variable, iterator, queue, accumulator, barrier or table of a handle, and ends "
      "what waits for it. Whether there was one.",
      1, 1, {}, scalar_of_handle(DType::kBool));
}

void register_accumulators(OpRegistry* registry) {
  add(registry, "Accumulator",
      "The handle of the accumulator of this name, which is made when there is none.", 0, 0,
      {kSharedName,
       kContainer,
       kDtypes,
       kShapes,
       {"reduction", "string", false,
        "'mean', which of a row is over the gradients that had it, 'mean_of_all', over all of "
        "them, or "
        "'sum'; 'mean' if absent."},
       {"sparse", "bool", false, "Whether it takes rows; false if absent."}},
      infer_made_of_components);
  add(registry, "AccumulatorApply",
      "(handle, local step, gradient), or with (indices, values) for the gradient of a sparse one: "
      "adds it, or drops it when its step is over. True.",
      3, 4, {}, infer_accumulator_apply);
  add(registry, "AccumulatorTake",
      "(handle, count): waits for `count` gradients, or for as many as come in a step; their mean "
      "or sum, of a sparse one (indices, values).",
      2, 2,
      {kDtypes,
       kShapes,
       {"waits", "bool", false,
        "False: takes what there is, whatever `count` says, of a dense one zeros when there is "
        "nothing; true if absent."}},
      infer_accumulator_take);
  add(registry, "AccumulatorAwaitStep",
      "(handle, step): waits until the current step is later than `step`; the current step, int64.",
      2, 2, {}, infer_accumulator_await);
  add(registry, "AccumulatorRestart",
      "(handle, step, contributors): forgets what was added and ends what waits; `step` is the "
      "current step, and so many gradients come in each. True.",
      3, 3, {}, infer_accumulator_restart);
  add(registry, "AccumulatorLeave",
      "(handle, count): so many gradients fewer come in each step from now on. True.", 2, 2, {},
      infer_accumulator_apply);
  add(registry, "AccumulatorSize", "How many gradients were added in this step, int32.", 1, 1, {},
      scalar_of_handle(DType::kInt32));
  add(registry, "AccumulatorSetGlobalStep", "(handle, step): makes it the current step. True.", 2,
      2, {}, infer_accumulator_apply);
}

void register_barriers(OpRegistry* registry) {
  add(registry, "StepBarrier",
      "The handle of the barrier of this name, which is made when there is none.", 0, 0,
      {kSharedName, kContainer}, infer_handle);
  add(registry, "StepBarrierRestart",
      "(handle, first, bound, names): ends what waits; replicas have these names, numbers from "
      "`first` on, and no step behind them. True.",
      4, 4, {}, infer_barrier_restart);
  add(registry, "StepBarrierAwait",
      "(handle, replica): waits until each replica that trains yet has at most `bound` steps fewer "
      "behind it; the number of the replica's next step, int64.",
      2, 2, {}, infer_accumulator_await);
  add(registry, "StepBarrierAdvance", "(handle, replica): it has ended a step. True.", 2, 2, {},
      infer_accumulator_apply);
  add(registry, "StepBarrierLeave",
      "(handle, replica, steps): when it has ended so many it is not waited for. True.", 3, 3, {},
      infer_accumulator_restart);
  add(registry, "StepBarrierJoin",
      "(handle, name, bound): the number, int64, of one more replica, which has the place of one "
      "of "
      "this name.",
      3, 3, {}, infer_barrier_join);
  add(registry, "StepBarrierExpel",
      "(handle, replica): those that it waits for are not waited for until they end a step; their "
      "names.",
      2, 2, {}, infer_barrier_expel);
}

void register_tables(OpRegistry* registry) {
  add(registry, "MutableTable",
      "The handle of the table of this name, which is made when there is none. Components: keys, "
      "values.",
      0, 0, {kSharedName, kContainer, kDtypes, kShapes}, infer_made_of_components);
  add(registry, "TableInsert", "(handle, keys, values): sets the values of keys. True.", 3, 3, {},
      scalar_of_handle(DType::kBool));
  add(registry, "TableFind", "(handle, keys, default): the values of keys, or the default.", 3, 3,
      {}, infer_table_find);
  add(registry, "TableRemove", "(handle, keys): forgets keys. True.", 2, 2, {},
      scalar_of_handle(DType::kBool));
  add(registry, "TableSize", "How many keys there are, int64.", 1, 1, {},
      scalar_of_handle(DType::kInt64));
  add(registry, "TableExport", "All keys and their values, in the order of the keys' bytes.", 1, 1,
      {kDtypes, kShapes}, infer_table_export);
  registry->add({.name = "StaticTableFind",
                 .doc = "(table keys [n], table values [n], keys, default []): the value of each "
                        "key, or the default; keys.shape. Keys of the table must not repeat.",
                 .min_inputs = 4,
                 .max_inputs = 4,
                 .infer = infer_lookup,
                 .differentiable = false});
}

}  // namespace

void register_resources(OpRegistry* registry) {
  register_queues(registry);
  register_iterators(registry);
  register_destroy(registry);
  register_accumulators(registry);
  register_barriers(registry);
  register_tables(registry);
  registry->add(
      {.name = "HostFunction",
       .doc = "What a function of the embedding program makes of the inputs; only in its process.",
       .min_inputs = 0,
       .max_inputs = -1,
       .attrs = {{"function", "int", true, "Number the function is registered under."},
                 {"gradient", "int", false, "That of its gradient; none if absent."},
                 kDtypes,
                 kShapes},
       .infer = infer_host_function,
       .gradient = grad_host_function,
       .stateful = true,
       .effect = true});
}

}  // namespace sidereal::ops::internal
