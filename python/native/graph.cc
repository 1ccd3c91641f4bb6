#include <nanobind/nanobind.h>
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
#include "sidereal/train/layers.h"
#include "sidereal/train/model.h"
#include "sidereal/train/models.h"
#include "sidereal/train/optimizers.h"
#include "symbol.h"

namespace sidereal::python {

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using Dims = std::vector<int64_t>;

/// A train::Model that says so when it is used after compile(), which takes its graph away.
/// Thread: under the GIL.
struct Model final : Building {
  explicit Model(uint64_t seed) : model(seed) {}
  ir::Builder& builder() override { return model.builder(); }
  train::Model model;
};
using ModelPtr = std::shared_ptr<Model>;

/// The model a value belongs to: layers make variables, which other graphs have not.
ModelPtr model_of(const Symbol& x) {
  ModelPtr model = std::dynamic_pointer_cast<Model>(x.building);
  if (model == nullptr) {
    raise(base::invalid_argument(
        "layers work on values of a sidereal.Model; this one is of a function's graph"));
  }
  static_cast<void>(open(model));
  return model;
}

Symbol wrap(const BuildingPtr& building, ir::Output output) {
  const Status status = building->builder().status();
  building->builder().clear_status();
  check(status);
  return {building, output};
}

Dims dims_of(const ir::Shape& shape) { return {shape.dims().begin(), shape.dims().end()}; }

ir::Output same_model(const BuildingPtr& model, const Symbol& x) {
  if (x.building != model) {
    raise(base::invalid_argument("values of two models cannot be combined"));
  }
  return x.output;
}

std::vector<ir::Output> same_model(const std::vector<Symbol>& xs) {
  if (xs.empty()) raise(base::invalid_argument("give at least one input"));
  std::vector<ir::Output> outputs;
  for (const Symbol& x : xs) outputs.push_back(same_model(xs.front().building, x));
  return outputs;
}

template <class Layer>
Symbol apply(const Layer& layer, const Symbol& x) {
  const ModelPtr model = model_of(x);
  return wrap(model, layer(model->model, x.output));
}

template <class Layer>
Symbol apply_to_all(const Layer& layer, const std::vector<Symbol>& xs) {
  const std::vector<ir::Output> inputs = same_model(xs);
  const ModelPtr model = model_of(xs.front());
  return wrap(model, layer(model->model, inputs));
}

void bind_initializer(nb::module_& m) {
  nb::class_<train::Initializer>(m, "Initializer", "How a variable's first value is made.")
      .def(
          "__init__",
          [](train::Initializer* self, const std::string& kind, double a, double b, uint64_t seed) {
            new (self) train::Initializer{kind, a, b, seed};
          },
          "kind"_a = "zeros", "a"_a = 0.0, "b"_a = 0.0, "seed"_a = 0)
      .def_ro("kind", &train::Initializer::kind)
      .def_ro("a", &train::Initializer::a)
      .def_ro("b", &train::Initializer::b)
      .def_ro("seed", &train::Initializer::seed);
}

void bind_layers(nb::module_& m) {
  m.def("normal_initializer", &train::normal_initializer, "stddev"_a = 0.01);
  m.def("glorot_uniform_initializer", &train::glorot_uniform_initializer);
  m.def("zeros_initializer", &train::zeros_initializer);
  m.def("embedding", [](const Symbol& ids, int64_t rows, int64_t dim,
                        const train::Initializer& initializer, const std::string& name, double l2) {
    return apply(train::Embedding{rows, dim, initializer, name, l2}, ids);
  });
  m.def("dense", [](const Symbol& x, int64_t units, const std::string& activation, bool use_bias,
                    const train::Initializer& initializer, const std::string& name, double l2) {
    return apply(train::Dense{units, activation, use_bias, initializer, name, l2}, x);
  });
  m.def("weight", [](const Symbol& x, nb::handle shape, const train::Initializer& initializer,
                     const std::string& name, double l2, const std::string& dtype, bool trainable) {
    const ir::DType type = value_of(tensor::dtype_from_name(dtype));
    return apply(train::Weight{shape_from_object(shape), initializer, name, l2, type, trainable},
                 x);
  });
  m.def("layer_name", [](const Symbol& x, const std::string& kind) {
    return model_of(x)->model.layer_name(kind);
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
    const ModelPtr model = model_of(x);
    return wrap(model, train::Weighted{}(model->model, x.output, same_model(model, weights)));
  });
  m.def(
      "weighted_sum",
      [](const Symbol& x, const std::optional<Symbol>& weights) {
        const ModelPtr model = model_of(x);
        const ir::Output w = weights.has_value() ? same_model(model, *weights) : ir::Output{};
        return wrap(model, train::WeightedSum{}(model->model, x.output, w));
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
  for (const train::ModelVariable& variable : model.variables) {
    variables.emplace_back(variable.name, std::string(tensor::name_of(variable.options.dtype)),
                           dims_of(variable.shape));
  }
  return variables;
}

using Parameters = std::map<std::string, double>;

train::OptimizerDef make_optimizer(const std::string& kind, const Parameters& parameters,
                                   double clipvalue, double clipnorm, double global_clipnorm) {
  train::OptimizerDef made =
      value_of(train::make_optimizer(kind, {}, {parameters.begin(), parameters.end()}));
  made.clipping = {.value = clipvalue, .norm = clipnorm, .global_norm = global_clipnorm};
  return made;
}

void bind_models(nb::module_& m) {
  nb::class_<train::CompiledModel>(m, "CompiledModel", "A model ready to be trained.")
      .def_prop_ro("inputs", &inputs_of, "(name, dtype, shape) of every input.")
      .def_ro("prediction", &train::CompiledModel::prediction, "Name of what it predicts.")
      .def_prop_ro(
          "prediction_inputs",
          [](const train::CompiledModel& model) {
            return value_of(train::placeholders_of(model.graph, {model.prediction}));
          },
          "Names of the inputs that the prediction depends on.")
      .def_ro("is_binary", &train::CompiledModel::is_binary,
              "Whether it predicts the probability of label 1.")
      .def_prop_ro("variables", &variables_of, "(name, dtype, shape) of every variable.")
      .def("__str__", [](const train::CompiledModel& c) { return ir::to_text(c.graph); });
  nb::class_<train::OptimizerDef>(m, "Optimizer")
      .def_ro("kind", &train::OptimizerDef::kind)
      .def_prop_ro("parameters", [](const train::OptimizerDef& o) {
        return Parameters(o.parameters.begin(), o.parameters.end());
      });
  m.def("make_optimizer", &make_optimizer, "kind"_a, "parameters"_a, "clipvalue"_a = 0.0,
        "clipnorm"_a = 0.0, "global_clipnorm"_a = 0.0);
  m.def("optimizer_names", &train::optimizer_names);
  m.def("model_names", &train::model_names);
  nb::class_<Model, Building>(m, "Model", nb::dynamic_attr(), "A model under construction.")
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
      .def("steps_done",
           [](const ModelPtr& self) {
             static_cast<void>(open(self));
             return wrap(self, self->model.steps_done());
           })
      .def(
          "set_learning_rate",
          [](const ModelPtr& self, const Symbol& rate) {
            static_cast<void>(open(self));
            self->model.set_learning_rate(same_model(self, rate));
          },
          "rate"_a)
      .def(
          "add_update",
          [](const ModelPtr& self, const Symbol& made) {
            static_cast<void>(open(self));
            self->model.add_update(same_model(self, made).node);
          },
          "made"_a)
      .def(
          "compile",
          [](const ModelPtr& self, const Symbol& logit, const train::OptimizerDef& optimizer) {
            static_cast<void>(open(self));
            const ir::Output output = same_model(self, logit);
            self->closed = "this model is compiled: nothing can be added to it";
            return value_of(self->model.compile(output, optimizer));
          },
          "logit"_a, "optimizer"_a)
      .def(
          "compile_loss",
          [](const ModelPtr& self, const Symbol& prediction, const Symbol& loss,
             const train::OptimizerDef& optimizer) {
            static_cast<void>(open(self));
            const ir::Output output = same_model(self, prediction);
            const ir::Output minimized = same_model(self, loss);
            self->closed = "this model is compiled: nothing can be added to it";
            return value_of(self->model.compile(output, minimized, optimizer));
          },
          "prediction"_a, "loss"_a, "optimizer"_a);
  m.def(
      "build_model",
      [](const std::string& kind, const data::Schema& schema, const train::OptimizerDef& optimizer,
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
  bind_initializer(m);
  nb::module_ layers = m.def_submodule("layers", "One function per layer of sidereal.layers.");
  bind_layers(layers);
  bind_models(m);
}

}  // namespace sidereal::python
