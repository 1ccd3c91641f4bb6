#include <nanobind/nanobind.h>
#include <nanobind/operators.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings.h"
#include "errors.h"
#include "sidereal/ir/text.h"
#include "sidereal/ops/ops.h"
#include "sidereal/train/layers.h"
#include "sidereal/train/model.h"
#include "sidereal/train/models.h"
#include "sidereal/train/optimizers.h"

namespace sidereal::python {

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using Dims = std::vector<int64_t>;

/// A train::Model that says so when it is used after compile(), which takes its graph away.
/// Thread: under the GIL.
struct Model {
  explicit Model(uint64_t seed) : model(seed) {}
  train::Model model;
  bool compiled = false;
};
using ModelPtr = std::shared_ptr<Model>;

/// An ir::Output with the model it belongs to, as Python code combines outputs without naming it.
struct Symbol {
  ModelPtr model;
  ir::Output output;
};

ir::Builder& open(const ModelPtr& model) {
  if (model->compiled) {
    raise(base::failed_precondition("this model is compiled: nothing can be added to it"));
  }
  return model->model.builder();
}

Symbol wrap(const ModelPtr& model, ir::Output output) {
  check(model->model.builder().status());
  return {model, output};
}

ir::TensorSpec spec_of(const Symbol& x) { return open(x.model).spec(x.output); }

Dims dims_of(const ir::Shape& shape) { return {shape.dims().begin(), shape.dims().end()}; }

nb::object numpy_dtype(ir::DType dtype) {
  return nb::module_::import_("numpy").attr("dtype")(std::string(tensor::name_of(dtype)));
}

ir::Output same_model(const ModelPtr& model, const Symbol& x) {
  if (x.model != model) {
    raise(base::invalid_argument("values of two models cannot be combined"));
  }
  return x.output;
}

std::vector<ir::Output> same_model(const std::vector<Symbol>& xs) {
  if (xs.empty()) raise(base::invalid_argument("give at least one input"));
  std::vector<ir::Output> outputs;
  for (const Symbol& x : xs) outputs.push_back(same_model(xs.front().model, x));
  return outputs;
}

template <class Layer>
Symbol apply(const Layer& layer, const Symbol& x) {
  static_cast<void>(open(x.model));
  return wrap(x.model, layer(x.model->model, x.output));
}

template <class Layer>
Symbol apply_to_all(const Layer& layer, const std::vector<Symbol>& xs) {
  const std::vector<ir::Output> inputs = same_model(xs);
  static_cast<void>(open(xs.front().model));
  return wrap(xs.front().model, layer(xs.front().model->model, inputs));
}

using UnaryOp = ir::Output (*)(ir::Builder&, ir::Output, std::string_view);
using BinaryOp = ir::Output (*)(ir::Builder&, ir::Output, ir::Output, std::string_view);

template <UnaryOp kOp>
Symbol unary(const Symbol& x) {
  return wrap(x.model, kOp(open(x.model), x.output, {}));
}

template <BinaryOp kOp>
Symbol binary(const Symbol& x, const Symbol& y) {
  return wrap(x.model, kOp(open(x.model), x.output, same_model(x.model, y), {}));
}

Symbol scalar_like(const Symbol& x, double value) {
  return wrap(x.model, ops::scalar(open(x.model), spec_of(x).dtype, value));
}

template <BinaryOp kOp>
void bind_operator(nb::class_<Symbol>& c, const char* name, const char* reversed) {
  c.def(name, &binary<kOp>, nb::is_operator());
  c.def(
      name, [](const Symbol& x, double y) { return binary<kOp>(x, scalar_like(x, y)); },
      nb::is_operator());
  c.def(
      reversed, [](const Symbol& x, double y) { return binary<kOp>(scalar_like(x, y), x); },
      nb::is_operator());
}

void bind_output(nb::module_& m) {
  nb::class_<Symbol> c(m, "Output", "A value of a model under construction.");
  c.def_prop_ro(
      "dtype", [](const Symbol& x) { return numpy_dtype(spec_of(x).dtype); },
      "NumPy dtype of the elements.");
  c.def_prop_ro(
      "shape", [](const Symbol& x) { return nb::tuple(nb::cast(dims_of(spec_of(x).shape))); },
      "Extents; -1 for one that is not known before training, such as the batch.");
  c.def("__repr__", [](const Symbol& x) {
    return x.model->compiled ? std::string("Output(of a compiled model)")
                             : "Output(" + ir::to_string(spec_of(x)) + ")";
  });
  bind_operator<ops::add>(c, "__add__", "__radd__");
  bind_operator<ops::sub>(c, "__sub__", "__rsub__");
  bind_operator<ops::mul>(c, "__mul__", "__rmul__");
  bind_operator<ops::div>(c, "__truediv__", "__rtruediv__");
  c.def("__neg__", &unary<ops::neg>);
  // NumPy scalars and arrays on the left leave the operation to this class.
  c.attr("__array_ufunc__") = nb::none();
  c.def(
      "__matmul__",
      [](const Symbol& x, const Symbol& y) {
        return wrap(x.model, ops::mat_mul(open(x.model), x.output, same_model(x.model, y)));
      },
      nb::is_operator());
}

void bind_ops(nb::module_& m) {
  m.def("add", &binary<ops::add>, "x"_a, "y"_a);
  m.def("sub", &binary<ops::sub>, "x"_a, "y"_a);
  m.def("mul", &binary<ops::mul>, "x"_a, "y"_a);
  m.def("div", &binary<ops::div>, "x"_a, "y"_a);
  m.def("maximum", &binary<ops::maximum>, "x"_a, "y"_a);
  m.def("minimum", &binary<ops::minimum>, "x"_a, "y"_a);
  m.def("neg", &unary<ops::neg>, "x"_a);
  m.def("exp", &unary<ops::exp>, "x"_a);
  m.def("log", &unary<ops::log>, "x"_a);
  m.def("log1p", &unary<ops::log1p>, "x"_a);
  m.def("sqrt", &unary<ops::sqrt>, "x"_a);
  m.def("square", &unary<ops::square>, "x"_a);
  m.def("abs", &unary<ops::abs>, "x"_a);
  m.def("sigmoid", &unary<ops::sigmoid>, "x"_a);
  m.def("tanh", &unary<ops::tanh>, "x"_a);
  m.def("relu", &unary<ops::relu>, "x"_a);
  m.def("softplus", &unary<ops::softplus>, "x"_a);
  m.def("stop_gradient", &unary<ops::stop_gradient>, "x"_a);
  m.def(
      "cast",
      [](const Symbol& x, const std::string& dtype) {
        const ir::DType to = value_of(tensor::dtype_from_name(dtype));
        return wrap(x.model, ops::cast(open(x.model), x.output, to));
      },
      "x"_a, "dtype"_a);
  m.def(
      "mat_mul",
      [](const Symbol& x, const Symbol& y, bool transpose_x, bool transpose_y) {
        return wrap(x.model, ops::mat_mul(open(x.model), x.output, same_model(x.model, y),
                                          transpose_x, transpose_y));
      },
      "x"_a, "y"_a, "transpose_x"_a = false, "transpose_y"_a = false);
  m.def(
      "reduce_sum",
      [](const Symbol& x, const Dims& axes, bool keep_dims) {
        return wrap(x.model, ops::reduce_sum(open(x.model), x.output, axes, keep_dims));
      },
      "x"_a, "axes"_a = Dims(), "keep_dims"_a = false);
  m.def(
      "reduce_mean",
      [](const Symbol& x, const Dims& axes, bool keep_dims) {
        return wrap(x.model, ops::reduce_mean(open(x.model), x.output, axes, keep_dims));
      },
      "x"_a, "axes"_a = Dims(), "keep_dims"_a = false);
  m.def(
      "reshape",
      [](const Symbol& x, const Dims& shape) {
        return wrap(x.model, ops::reshape(open(x.model), x.output, shape));
      },
      "x"_a, "shape"_a);
  m.def(
      "slice_axis",
      [](const Symbol& x, int64_t axis, int64_t begin, int64_t size) {
        return wrap(x.model, ops::slice_axis(open(x.model), x.output, axis, begin, size));
      },
      "x"_a, "axis"_a, "begin"_a, "size"_a);
}

void bind_initializer(nb::module_& m) {
  nb::class_<ir::InitializerDef>(m, "Initializer", "How a variable's first value is made.")
      .def(
          "__init__",
          [](ir::InitializerDef* self, const std::string& kind, double a, double b, uint64_t seed) {
            new (self) ir::InitializerDef{kind, a, b, seed};
          },
          "kind"_a = "zeros", "a"_a = 0.0, "b"_a = 0.0, "seed"_a = 0)
      .def_ro("kind", &ir::InitializerDef::kind)
      .def_ro("a", &ir::InitializerDef::a)
      .def_ro("b", &ir::InitializerDef::b)
      .def_ro("seed", &ir::InitializerDef::seed);
}

void bind_layers(nb::module_& m) {
  m.def("normal_initializer", &train::normal_initializer, "stddev"_a = 0.01);
  m.def("glorot_uniform_initializer", &train::glorot_uniform_initializer);
  m.def("zeros_initializer", &train::zeros_initializer);
  m.def("embedding", [](const Symbol& ids, int64_t rows, int64_t dim,
                        const ir::InitializerDef& initializer, const std::string& name, double l2) {
    return apply(train::Embedding{rows, dim, initializer, name, l2}, ids);
  });
  m.def("dense", [](const Symbol& x, int64_t units, const std::string& activation, bool use_bias,
                    const ir::InitializerDef& initializer, const std::string& name, double l2) {
    return apply(train::Dense{units, activation, use_bias, initializer, name, l2}, x);
  });
  m.def("bias",
        [](const Symbol& x, const std::string& name) { return apply(train::Bias{name}, x); });
  m.def("dropout", [](const Symbol& x, double rate) { return apply(train::Dropout{rate}, x); });
  m.def("mlp", [](const Symbol& x, const Dims& hidden, const std::string& activation,
                  double dropout, const std::string& name, double l2) {
    return apply(train::Mlp{hidden, activation, dropout, name, l2}, x);
  });
  m.def("flatten", [](const Symbol& x) { return apply(train::Flatten{}, x); });
  m.def("concatenate", [](const std::vector<Symbol>& inputs, int64_t axis) {
    return apply_to_all(train::Concatenate{axis}, inputs);
  });
  m.def("add_all",
        [](const std::vector<Symbol>& inputs) { return apply_to_all(train::Add{}, inputs); });
  m.def("weighted", [](const Symbol& x, const Symbol& weights) {
    static_cast<void>(open(x.model));
    return wrap(x.model, train::Weighted{}(x.model->model, x.output, same_model(x.model, weights)));
  });
  m.def(
      "weighted_sum",
      [](const Symbol& x, const std::optional<Symbol>& weights) {
        static_cast<void>(open(x.model));
        const ir::Output w = weights.has_value() ? same_model(x.model, *weights) : ir::Output{};
        return wrap(x.model, train::WeightedSum{}(x.model->model, x.output, w));
      },
      "x"_a, "weights"_a.none());
  m.def("factorization_machine",
        [](const Symbol& x) { return apply(train::FactorizationMachine{}, x); });
  m.def("cross_network", [](const Symbol& x, int64_t layers, const std::string& name, double l2) {
    return apply(train::CrossNetwork{layers, name, l2}, x);
  });
}

using NamedSpec = std::tuple<std::string, std::string, Dims>;

std::vector<NamedSpec> inputs_of(const train::CompiledModel& model) {
  std::vector<NamedSpec> inputs;
  for (const std::string& name : model.inputs) {
    const ir::TensorSpec& spec = model.graph.find(name)->outputs[0];
    inputs.emplace_back(name, std::string(tensor::name_of(spec.dtype)), dims_of(spec.shape));
  }
  return inputs;
}

std::vector<NamedSpec> variables_of(const train::CompiledModel& model) {
  std::vector<NamedSpec> variables;
  for (const ir::VariableDef& def : model.graph.variables()) {
    variables.emplace_back(def.name, std::string(tensor::name_of(def.dtype)), dims_of(def.shape));
  }
  return variables;
}

using Parameters = std::map<std::string, double>;

ir::OptimizerDef make_optimizer(const std::string& kind, const Parameters& parameters) {
  return value_of(train::make_optimizer(kind, {}, {parameters.begin(), parameters.end()}));
}

void bind_models(nb::module_& m) {
  nb::class_<train::CompiledModel>(m, "CompiledModel", "A model ready to be trained.")
      .def_prop_ro("inputs", &inputs_of, "(name, dtype, shape) of every input.")
      .def_prop_ro("variables", &variables_of, "(name, dtype, shape) of every variable.")
      .def("__str__", [](const train::CompiledModel& c) { return ir::to_text(c.graph); });
  nb::class_<ir::OptimizerDef>(m, "Optimizer")
      .def_ro("kind", &ir::OptimizerDef::kind)
      .def_prop_ro("parameters", [](const ir::OptimizerDef& o) {
        return Parameters(o.parameters.begin(), o.parameters.end());
      });
  m.def("make_optimizer", &make_optimizer, "kind"_a, "parameters"_a);
  m.def("optimizer_names", &train::optimizer_names);
  m.def("model_names", &train::model_names);
  nb::class_<Model>(m, "Model", "A model under construction.")
      .def(nb::init<uint64_t>(), "seed"_a = 0)
      .def(
          "input",
          [](const ModelPtr& self, const std::string& name, const std::string& dtype,
             const Dims& shape) {
            const ir::DType type = value_of(tensor::dtype_from_name(dtype));
            static_cast<void>(open(self));
            return wrap(self, self->model.input(name, type, ir::Shape(std::span(shape))));
          },
          "name"_a, "dtype"_a, "shape"_a)
      .def(
          "compile",
          [](const ModelPtr& self, const Symbol& logit, const ir::OptimizerDef& optimizer) {
            static_cast<void>(open(self));
            const ir::Output output = same_model(self, logit);
            self->compiled = true;
            return value_of(self->model.compile(output, optimizer));
          },
          "logit"_a, "optimizer"_a);
  m.def(
      "build_model",
      [](const std::string& kind, const data::Schema& schema, const ir::OptimizerDef& optimizer,
         int64_t embedding_dim, double embedding_stddev, const Dims& hidden, double dropout,
         int64_t cross_layers, uint64_t seed, double l2_embedding, double l2_linear,
         double l2_dense) {
        return value_of(train::build_model({.kind = kind,
                                            .schema = schema,
                                            .embedding_dim = embedding_dim,
                                            .embedding_stddev = embedding_stddev,
                                            .hidden = hidden,
                                            .dropout = dropout,
                                            .cross_layers = cross_layers,
                                            .optimizer = optimizer,
                                            .seed = seed,
                                            .l2_embedding = l2_embedding,
                                            .l2_linear = l2_linear,
                                            .l2_dense = l2_dense}));
      },
      "kind"_a, "schema"_a, "optimizer"_a, "embedding_dim"_a, "embedding_stddev"_a, "hidden"_a,
      "dropout"_a, "cross_layers"_a, "seed"_a, "l2_embedding"_a, "l2_linear"_a, "l2_dense"_a);
}

}  // namespace

void bind_graph(nb::module_& m) {
  bind_output(m);
  nb::module_ ops = m.def_submodule("ops", "Ops on outputs.");
  bind_ops(ops);
  bind_initializer(m);
  nb::module_ layers = m.def_submodule("layers", "One function per layer of sidereal.layers.");
  bind_layers(layers);
  bind_models(m);
}

}  // namespace sidereal::python
