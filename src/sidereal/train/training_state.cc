#include "sidereal/train/training_state.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "sidereal/base/hash.h"
#include "sidereal/base/strings.h"
#include "sidereal/ckpt/index.h"
#include "sidereal/data/byte_source.h"
#include "sidereal/data/table_formats.h"

namespace sidereal::train {

using base::invalid_argument;
using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

namespace {

constexpr int64_t kPassNumbers = 4;
/// Of a point of the curve; checkpoints from before there were more have the first so many.
constexpr int64_t kCurveNumbers = 12;
constexpr int64_t kCurveNumbersFirst = 6;
constexpr const char* kRemedy =
    "give another checkpoint directory, or --resume never (resume='never') to begin anew";

std::string file_identity(const std::string& name, const std::string& path) {
  return fmt::format("{}:{}", name, data::file_bytes(path).value_or(0));
}

/// What columns become, in short; "" where they stand as they are.
std::string features_identity(const data::DataSpec& data) {
  data::DataSpec features;
  features.label_rule = data.label_rule;
  features.weight = data.weight;
  features.transforms = data.transforms;
  features.defaults = data.defaults;
  features.multi_hot = data.multi_hot;
  features.bucketized = data.bucketized;
  features.crosses = data.crosses;
  features.vocabularies = data.vocabularies;
  features.sequences = data.sequences;
  features.hash = data.hash;
  features.targets = data.targets;
  features.group = data.group;
  features.class_weights = data.class_weights;
  features.negatives = data.negatives;
  if (features == data::DataSpec()) return "";
  return fmt::format("features:{:016x}", base::hash64(data::to_json(features)));
}

Tensor numbers(const Shape& shape, const std::vector<int64_t>& values) {
  return Tensor::of<int64_t>(shape, values);
}

Tensor value_of(const TrainingState& state, std::string_view name) {
  if (name == "step") return Tensor::scalar(state.steps);
  if (name == "rows") return Tensor::scalar(state.rows);
  if (name == "loop_steps") return Tensor::scalar(state.loop_steps);
  if (name == "epoch") return Tensor::scalar(state.position.next_epoch);
  if (name == "worker_steps") {
    return numbers({static_cast<int64_t>(state.worker_steps.size())}, state.worker_steps);
  }
  if (name == "data") return Tensor::strings(Shape(), std::vector<std::string>{state.data});
  if (name == "begun_passes") {
    std::vector<int64_t> out;
    for (const BegunPass& pass : state.position.begun) {
      out.insert(out.end(), {pass.epoch, pass.part, pass.parts, pass.rows_done});
    }
    return numbers({static_cast<int64_t>(state.position.begun.size()), kPassNumbers}, out);
  }
  std::vector<double> curve;
  for (const EvalResult& one : state.validation) {
    curve.insert(curve.end(), {static_cast<double>(one.rows), static_cast<double>(one.rows_skipped),
                               one.loss, one.auc, one.log_loss, one.seconds, one.quality.pr_auc,
                               one.quality.rmse, one.quality.calibration, one.quality.grouped_auc,
                               one.quality.ndcg, one.training_loss});
  }
  return Tensor::of<double>({static_cast<int64_t>(state.validation.size()), kCurveNumbers}, curve);
}

Result<Tensor> read(ckpt::CheckpointReader* reader, const std::string& prefix, const char* name,
                    DType dtype, int rank) {
  Result<Tensor> got = reader->read(kStatePrefix + std::string(name));
  if (got.ok() && got->dtype() == dtype && got->shape().rank() == rank) return got;
  if (!got.ok() && got.status().code() != StatusCode::kNotFound) return got.status();
  return invalid_argument(
      "checkpoint '{}' was not made by a training of this kind: it has no tensor '{}{}'; {}",
      prefix, kStatePrefix, name, kRemedy);
}

Result<int64_t> read_number(ckpt::CheckpointReader* reader, const std::string& prefix,
                            const char* name) {
  SR_ASSIGN_OR_RETURN(const Tensor value, read(reader, prefix, name, DType::kInt64, 0));
  return value.data<const int64_t>()[0];
}

}  // namespace

std::string data_identity(const data::DataSpec& data) {
  std::vector<std::string> parts = {std::string(data::name_of(data.format)),
                                    fmt::format("shuffle:{}", data.shuffle_rows),
                                    std::string(data::name_of(data.bad_rows))};
  if (data.shuffle_rows > 0 || !data.negatives.column.empty()) {
    parts.push_back(fmt::format("seed:{}", data.seed));
  }
  for (const std::string& file : data.files) {
    // A table in the memory of a process has no name of its own.
    const bool is_memory = data::table_file(file).path.starts_with("/proc/");
    const std::string name = std::filesystem::path(file).filename().string();
    parts.push_back(file_identity(is_memory ? "table" : name, file));
  }
  for (const auto& [column, file] : data.arrays) parts.push_back(file_identity(column, file));
  const std::string features = features_identity(data);
  if (!features.empty()) parts.push_back(features);
  if (data.format == data::Format::kSynthetic) {
    parts.push_back(fmt::format("rows:{}+{}:{}", data.synthetic.first_row, data.synthetic.rows,
                                data.synthetic.seed));
  }
  return base::join(parts, " ");
}

std::vector<std::pair<std::string, Tensor>> feeds_of(const TrainingState& state,
                                                     const SavingNodes& nodes) {
  std::vector<std::pair<std::string, Tensor>> out;
  const std::string_view before = kStatePrefix;
  for (const auto& [name, node] : nodes.state) {
    out.emplace_back(node, value_of(state, std::string_view(name).substr(before.size())));
  }
  return out;
}

Result<TrainingState> read_state(ckpt::CheckpointReader* reader, const std::string& prefix) {
  TrainingState out;
  SR_ASSIGN_OR_RETURN(out.steps, read_number(reader, prefix, "step"));
  SR_ASSIGN_OR_RETURN(out.rows, read_number(reader, prefix, "rows"));
  SR_ASSIGN_OR_RETURN(out.loop_steps, read_number(reader, prefix, "loop_steps"));
  SR_ASSIGN_OR_RETURN(out.position.next_epoch, read_number(reader, prefix, "epoch"));
  SR_ASSIGN_OR_RETURN(const Tensor steps, read(reader, prefix, "worker_steps", DType::kInt64, 1));
  const auto of_workers = steps.data<const int64_t>();
  out.worker_steps.assign(of_workers.begin(), of_workers.end());
  SR_ASSIGN_OR_RETURN(const Tensor begun, read(reader, prefix, "begun_passes", DType::kInt64, 2));
  SR_ASSIGN_OR_RETURN(const Tensor curve, read(reader, prefix, "curve", DType::kFloat64, 2));
  SR_ASSIGN_OR_RETURN(const Tensor data, read(reader, prefix, "data", DType::kString, 0));
  out.data = std::string(data.data<const std::string_view>()[0]);
  const auto passes = begun.data<const int64_t>();
  for (size_t i = 0; i + kPassNumbers <= passes.size(); i += kPassNumbers) {
    const BegunPass pass{.epoch = passes[i],
                         .part = passes[i + 1],
                         .parts = passes[i + 2],
                         .rows_done = passes[i + 3]};
    if (pass.epoch < 0 || pass.parts < 1 || pass.part < 0 || pass.part >= pass.parts ||
        pass.rows_done < 0) {
      return base::data_loss("checkpoint '{}': '{}begun_passes' says what cannot be", prefix,
                             kStatePrefix);
    }
    out.position.begun.push_back(pass);
  }
  const auto points = curve.data<const double>();
  const int64_t width = curve.shape().dim(1);
  if (width != kCurveNumbers && width != kCurveNumbersFirst) {
    return base::data_loss("checkpoint '{}': '{}curve' says what cannot be", prefix, kStatePrefix);
  }
  for (size_t i = 0; i < points.size(); i += static_cast<size_t>(width)) {
    EvalResult& one = out.validation.emplace_back();
    one.rows = static_cast<int64_t>(points[i]);
    one.rows_skipped = static_cast<int64_t>(points[i + 1]);
    one.loss = points[i + 2];
    one.auc = points[i + 3];
    one.log_loss = points[i + 4];
    one.seconds = points[i + 5];
    if (width == kCurveNumbersFirst) continue;
    one.quality = {.pr_auc = points[i + 6],
                   .rmse = points[i + 7],
                   .calibration = points[i + 8],
                   .grouped_auc = points[i + 9],
                   .ndcg = points[i + 10]};
    one.training_loss = points[i + 11];
  }
  return out;
}

Status check_variables(const ckpt::CheckpointReader& reader, const std::string& prefix,
                       const std::vector<SavedVariable>& variables) {
  std::set<std::string, std::less<>> wanted;
  const std::string file = ckpt::index_path(prefix);
  for (const SavedVariable& one : variables) {
    wanted.insert(one.name);
    const ckpt::StoredTensor* const stored = reader.find(one.name);
    if (stored == nullptr) {
      return invalid_argument(
          "{} is of another model: it has no tensor '{}', which this one has; {}", file, one.name,
          kRemedy);
    }
    if (stored->dtype != one.dtype || stored->shape != one.shape) {
      return invalid_argument(
          "{} is of another model: its '{}' is {} {}, that of this one {} {}; {}", file, one.name,
          tensor::name_of(stored->dtype), stored->shape.to_string(), tensor::name_of(one.dtype),
          one.shape.to_string(), kRemedy);
    }
  }
  for (const ckpt::StoredTensor& stored : reader.list()) {
    if (stored.name.starts_with(kStatePrefix) || wanted.contains(stored.name)) continue;
    return invalid_argument("{} is of another model: this one has no '{}'; {}", file, stored.name,
                            kRemedy);
  }
  return {};
}

}  // namespace sidereal::train
