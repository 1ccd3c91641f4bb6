#pragma once

#include <cstdint>
#include <span>

/// Update rules of optimizers, float32.
namespace sidereal::kernels {

/// The arithmetic of one update. g is the gradient plus weight_decay * w; all are per element.
enum class RuleKind : uint8_t {
  /// w -= lr * g.
  kSgd = 0,
  /// m = momentum * m + g; w -= lr * m, or with nesterov w -= lr * (g + momentum * m).
  kMomentum = 1,
  /// a += g * g; w -= lr * g / (sqrt(a) + epsilon).
  kAdagrad = 2,
  /// m = beta1 * m + (1 - beta1) * g; v = beta2 * v + (1 - beta2) * g * g;
  /// w -= lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + epsilon) (torch.optim.Adam).
  kAdam = 3,
  /// TensorFlow's ApplyFtrl: n' = n + g * g; z += g - (n'^-p - n^-p) / lr * w with p = lr_power;
  /// w = |z| > l1 ? (sign(z) * l1 - z) / (n'^-p / lr + 2 * l2) : 0. Slots are n, z.
  kFtrl = 4,
};

/// One update, with all that depends on the step already worked out.
struct RuleStep {
  RuleKind kind = RuleKind::kSgd;
  bool nesterov = false;
  float learning_rate = 0;
  float weight_decay = 0;
  float momentum = 0;
  float beta1 = 0;
  float beta2 = 0;
  float epsilon = 0;
  float l1 = 0;
  float l2 = 0;
  float lr_power = -0.5F;
  float correction1 = 1;  ///< Adam: 1 / (1 - beta1^t).
  float correction2 = 1;  ///< Adam: 1 / sqrt(1 - beta2^t).
};

/// Slots per weight: 0 sgd, 1 momentum and adagrad, 2 adam and ftrl.
int num_slots(RuleKind kind);

/// Applies grads [rows.size(), dim] to the rows of a table. Row r starts at table + r * stride and
/// is laid out [w(dim) | slot 1(dim) | slot 2(dim)]. The rows must be inside the table and
/// distinct.
void apply_rows(const RuleStep& rule, float* table, int64_t stride, std::span<const int64_t> rows,
                const float* grads, int64_t dim);

/// Arrays of a dense update: n weights are read from w_in and written to w_out (which may be
/// w_in); the slots are updated in place; unused slots may be null.
struct DenseUpdate {
  const float* w_in = nullptr;
  float* w_out = nullptr;
  float* slot1 = nullptr;
  float* slot2 = nullptr;
  const float* grad = nullptr;
  int64_t n = 0;
};

/// Applies one dense update.
void apply_dense(const RuleStep& rule, const DenseUpdate& update);

/// Rows of an array: row r begins at data + r * stride.
struct RowArray {
  float* data = nullptr;
  int64_t stride = 0;
};

/// Weights and slots of a table, in arrays of their own or in the rows of one; unused slots may be
/// null.
struct SplitTable {
  RowArray w;
  RowArray slot1;
  RowArray slot2;
};

/// Applies the gradients at grads[i], each of `dim`, to rows[i] of the arrays. The rows must be
/// inside the arrays and distinct.
void apply_split_rows(const RuleStep& rule, const SplitTable& table, std::span<const int64_t> rows,
                      std::span<const float* const> grads, int64_t dim);

}  // namespace sidereal::kernels
