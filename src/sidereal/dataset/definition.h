#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "sidereal/base/status.h"
#include "sidereal/dataset/element.h"
#include "sidereal/ir/function.h"

/// Datasets: what they are (definition.h), as text for another process (definition_text.h), and how
/// their elements are made (iterator.h).
namespace sidereal::dataset {

/// How deep datasets may stand on each other, and how many stages one may have.
inline constexpr int kMaxDepth = 500;
inline constexpr int64_t kMaxStages = 100'000;

/// A number or tensor that a dataset is made with. Inside of a function that gives a dataset
/// (Interleave), it may come from that function: value number `slot`.
struct Parameter {
  Tensor value;
  int32_t slot = -1;
  int64_t variable = -1;  ///< Number of a variable whose value it is; of this process only.
  ir::TensorSpec spec;    ///< What is known of it; of a value, what it is.

  static Parameter of(Tensor value);
  static Parameter from_slot(int32_t slot, ir::TensorSpec spec);
};

class Dataset;
using DatasetPtr = std::shared_ptr<const Dataset>;

/// What a dataset is made of. Value type. The ops, with their parameters, attributes and inputs,
/// are listed in definition.cc.
struct DatasetDef {
  std::string op;
  ir::AttrMap attrs = {};
  std::vector<DatasetPtr> inputs = {};
  std::vector<Parameter> parameters = {};
  /// Runs on the elements of the input: its arguments are their components, then the parameters
  /// that the op has no other use for.
  ir::FunctionPtr function = nullptr;
  /// Interleave: the dataset that values of `function` fill in.
  DatasetPtr inner = nullptr;
};

/// What iterators of one dataset share in a process. Thread: any.
struct SharedState {
  std::atomic<uint64_t> iterations{0};  ///< Iterators made; tells the orders of a Shuffle apart.
  std::mutex mutex;
  bool cached = false;  ///< Whether `cache` has all elements. Guarded by mutex, like `cache`.
  std::vector<Element> cache;
};

/// A pipeline of elements: a source, or a transformation of other datasets. It reads nothing by
/// itself.
/// Thread: immutable, but for shared().
class Dataset {
 public:
  /// kInvalidArgument when the op is not known, or its parameters, attributes or function are not
  /// what it takes: they may come from anyone.
  static Result<DatasetPtr> make(DatasetDef def);

  [[nodiscard]] const DatasetDef& def() const { return def_; }
  [[nodiscard]] const std::string& op() const { return def_.op; }
  [[nodiscard]] const std::vector<ComponentSpec>& outputs() const { return outputs_; }
  /// Why it cannot leave this process; "" when it can.
  [[nodiscard]] const std::string& local_reason() const { return local_; }
  /// True while parameters are missing: the dataset of an Interleave's function.
  [[nodiscard]] bool has_slots() const { return has_slots_; }
  [[nodiscard]] SharedState& shared() const { return *shared_; }

  /// This dataset with values in the place of slots, and `element`'s lists in that of arguments.
  /// Iterators of both share their state.
  [[nodiscard]] Result<DatasetPtr> filled(const DatasetPtr& self, const std::vector<Tensor>& values,
                                          const Element& element) const;

  /// This dataset with other values of variables, by number, of the dtypes and shapes that they
  /// had. Iterators of both share their state.
  [[nodiscard]] Result<DatasetPtr> with_values(
      const DatasetPtr& self, const absl::flat_hash_map<int64_t, Tensor>& values) const;

  /// Elements that it has: kInfinite, or kUnknown where only reading tells.
  static constexpr int64_t kInfinite = -1;
  static constexpr int64_t kUnknown = -2;
  [[nodiscard]] int64_t cardinality() const;

 private:
  Dataset() = default;
  Status infer();

  DatasetDef def_;
  std::vector<ComponentSpec> outputs_;
  std::string local_;
  std::shared_ptr<SharedState> shared_;
  std::shared_ptr<const std::vector<Tensor>> list_;  // Of a filled Argument.
  bool has_slots_ = false;
  int depth_ = 1;
  int64_t stages_ = 1;
  friend const std::vector<Tensor>* list_of(const Dataset& dataset);
};

/// The tensors of a filled Argument, nullptr of others.
const std::vector<Tensor>* list_of(const Dataset& dataset);

/// Parameter `i` as a number, which make() has seen to be a scalar int64. kFailedPrecondition when
/// it is not filled in.
Result<int64_t> number_of(const Dataset& dataset, size_t i);

/// All numbers of parameter `i`, an int64 vector.
Result<std::vector<int64_t>> numbers_of(const Dataset& dataset, size_t i);

/// Whether a RaggedBatch gives rows of this shape, that of a batch, as two components: values and
/// row splits.
bool is_ragged(const tensor::Shape& batch);

/// Elements of Range(start, stop, step): 0 where step leads nowhere.
int64_t range_length(int64_t start, int64_t stop, int64_t step);

/// Parameters from this one on are arguments of the function.
size_t first_capture(const Dataset& dataset);

}  // namespace sidereal::dataset
