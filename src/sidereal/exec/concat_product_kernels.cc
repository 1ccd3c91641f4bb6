#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "sidereal/exec/array_util.h"
#include "sidereal/exec/product.h"
#include "sidereal/ir/schema.h"
#include "sidereal/kernels/elementwise.h"
#include "sidereal/kernels/matmul.h"
#include "sidereal/kernels/nn.h"

/// Products of values that stand next to one another, read and written where they are: w has a
/// block of rows for each of them.
namespace sidereal::exec {
namespace {

using base::invalid_argument;
using tensor::Shape;
using tensor::Tensor;

/// Rows handled at a time, so that a block of `columns` of them stays in the second cache. Depends
/// on shapes alone, as every sum does.
int64_t block_rows(int64_t columns, size_t element) {
  constexpr int64_t kBytes = int64_t{1} << 19;
  constexpr int64_t kLeast = 64;
  constexpr int64_t kMost = 1024;
  const int64_t row = std::max<int64_t>(columns, 1) * static_cast<int64_t>(element);
  return std::clamp(kBytes / row, kLeast, kMost) & ~int64_t{15};
}

Shape with_columns(Shape front, int64_t columns) {
  front.append(columns);
  return front;
}

/// Values next to one another along their last dimension, and the matrix that they make.
class Parts {
 public:
  struct Part {
    const void* data;
    int64_t width;
    int64_t first;  ///< Its first column of the matrix.
    Shape front;    ///< Dimensions in front of the last.
    int64_t rows;
    bool is_full;  ///< Not broadcast: a row for each of the matrix.
  };

  /// Takes the first `count` inputs.
  Status read(const KernelContext& c, int count) {
    parts_.clear();
    columns_ = 0;
    for (int i = 0; i < count; ++i) {
      const Shape& shape = c.input(i).shape();
      if (shape.rank() == 0) return invalid_argument("part {} is a scalar", i);
      const Shape front(shape.dims().first(shape.rank() - 1));
      if (!kernels::broadcast_shape(i == 0 ? front : front_, front, &front_)) {
        return invalid_argument("part {} is {}, which does not fit those before it", i,
                                c.input(i).to_string());
      }
      const int64_t width = shape.dim(-1);
      parts_.push_back({c.input(i).raw(), width, columns_, front, front.num_elements(), false});
      columns_ += width;
    }
    SR_RETURN_IF_ERROR(ir::check_shape(front_));
    for (Part& part : parts_) part.is_full = part.front == front_;
    return {};
  }

  [[nodiscard]] const std::vector<Part>& all() const { return parts_; }
  [[nodiscard]] const Shape& front() const { return front_; }
  [[nodiscard]] int64_t rows() const { return front_.num_elements(); }
  [[nodiscard]] int64_t columns() const { return columns_; }

 private:
  std::vector<Part> parts_;
  Shape front_;
  int64_t columns_ = 0;
};

/// Walks over the rows of a matrix that were broadcast from others.
class RowWalk {
 public:
  RowWalk(const Shape& from, const Shape& to)
      : offsets_(from, to),
        inner_(to.rank() == 0 ? 1 : to.dim(-1)),
        step_(from.rank() == 0 || from.dim(-1) == 1 ? 0 : 1) {}

  /// Calls body(row of `from`, row of `to`) for the rows [first, last) of `to`.
  template <class Body>
  void each(int64_t first, int64_t last, const Body& body) const {
    for (int64_t at = first; at < last;) {
      const int64_t run = std::min(last, (at / inner_ + 1) * inner_) - at;
      const int64_t from = offsets_(at);
      for (int64_t i = 0; i < run; ++i) body(from + i * step_, at + i);
      at += run;
    }
  }

 private:
  kernels::RowOffsets offsets_;
  int64_t inner_;
  int64_t step_;
};

class ConcatMatMul final : public Kernel {
 public:
  ConcatMatMul(bool bias, std::optional<kernels::UnaryOp> activation)
      : bias_(bias), activation_(activation) {}

  Status run(KernelContext& c) override {
    SR_RETURN_IF_ERROR(check_one_dtype(c));
    const int count = c.num_inputs() - (bias_ ? 2 : 1);
    if (count < 1) return invalid_argument("there are no parts");
    SR_RETURN_IF_ERROR(check_rank(c, count, 2));
    SR_RETURN_IF_ERROR(parts_.read(c, count));
    const Shape& w = c.input(count).shape();
    if (w.dim(0) != parts_.columns()) {
      return invalid_argument("parts of {} columns do not fit {}", parts_.columns(),
                              c.input(count).to_string());
    }
    if (bias_ && !(c.input(count + 1).shape() == Shape{w.dim(1)})) {
      return invalid_argument("a bias of {} does not fit {} columns",
                              c.input(count + 1).to_string(), w.dim(1));
    }
    SR_ASSIGN_OR_RETURN(Tensor* const out, large_output(c, 0, Shape{parts_.rows(), w.dim(1)}));
    if (out->num_elements() == 0) return {};
    return tensor::with_dtype<tensor::RealTypes>(out->dtype(), [&]<class T>() -> Status {
      multiply<T>(c, count, *out);
      narrow_.clear();
      return {};
    });
  }

 private:
  /// The product of a part that was broadcast, made once for all of its rows.
  struct Narrow {
    Tensor product;
    RowWalk walk;
  };

  template <class T>
  void multiply(KernelContext& c, int count, const Tensor& out) {
    const int64_t n = out.shape().dim(1);
    const T* w = c.input(count).data<const T>().data();
    const T* bias = bias_ ? c.input(count + 1).data<const T>().data() : nullptr;
    for (const Parts::Part& part : parts_.all()) {
      if (part.is_full) continue;
      const Tensor product = c.temporary(out.dtype(), Shape{part.rows, n});
      kernels::mat_mul<T>(static_cast<const T*>(part.data), w + part.first * n,
                          product.data<T>().data(), {.m = part.rows, .k = part.width, .n = n});
      narrow_.push_back({product, RowWalk(part.front, parts_.front())});
    }
    const int64_t block = block_rows(n, sizeof(T));
    const int64_t rows = parts_.rows();
    c.parallel((rows + block - 1) / block, 1, [&](int64_t first, int64_t last) {
      for (int64_t at = first * block; at < std::min(last * block, rows); at += block) {
        run_block<T>(w, bias, out.data<T>().data(), n, at, std::min(at + block, rows));
      }
    });
  }

  template <class T>
  void run_block(const T* w, const T* bias, T* out, int64_t n, int64_t first, int64_t last) const {
    bool begun = false;
    for (const Narrow& narrow : narrow_) {
      const T* product = narrow.product.template data<const T>().data();
      narrow.walk.each(first, last, [&](int64_t from, int64_t to) {
        const T* row = product + from * n;
        if (begun) {
          kernels::binary<T>(kernels::BinaryOp::kAdd, out + to * n, row, out + to * n, n);
        } else {
          std::memcpy(out + to * n, row, n * sizeof(T));
        }
      });
      begun = true;
    }
    const int64_t rows = last - first;
    for (const Parts::Part& part : parts_.all()) {
      if (!part.is_full) continue;
      kernels::mat_mul<T>(static_cast<const T*>(part.data) + first * part.width, w + part.first * n,
                          out + first * n, {.m = rows, .k = part.width, .n = n},
                          begun ? T(1) : T(0));
      begun = true;
    }
    T* done = out + first * n;
    if (bias != nullptr) kernels::bias_add<T>(done, bias, done, rows, n);
    if (activation_) kernels::unary<T>(*activation_, done, done, rows * n);
  }

  bool bias_;
  std::optional<kernels::UnaryOp> activation_;
  Parts parts_;
  std::vector<Narrow> narrow_;
};

class TransposedConcatMatMul final : public Kernel {
 public:
  Status run(KernelContext& c) override {
    SR_RETURN_IF_ERROR(check_one_dtype(c));
    const int count = c.num_inputs() - 1;
    SR_RETURN_IF_ERROR(check_rank(c, count, 2));
    SR_RETURN_IF_ERROR(parts_.read(c, count));
    const Tensor y = c.input(count);
    if (y.shape().dim(0) != parts_.rows()) {
      return invalid_argument("parts of {} rows do not fit {}", parts_.rows(), y.to_string());
    }
    SR_ASSIGN_OR_RETURN(Tensor* const out,
                        large_output(c, 0, Shape{parts_.columns(), y.shape().dim(1)}));
    if (out->num_elements() == 0) return {};
    return tensor::with_dtype<tensor::RealTypes>(out->dtype(), [&]<class T>() -> Status {
      multiply<T>(c, y, *out);
      multiply_narrow<T>(c, y, *out);
      return {};
    });
  }

 private:
  /// How many sums of their own the rows are added up in.
  [[nodiscard]] int64_t sums(int64_t n) const {
    constexpr int64_t kMost = 8;
    constexpr int64_t kLeastRows = 1024;
    constexpr double kFlopsMin = 6e7;
    const double flops = 2.0 * static_cast<double>(parts_.rows()) *
                         static_cast<double>(parts_.columns()) * static_cast<double>(n);
    if (flops < kFlopsMin) return 1;
    return std::clamp<int64_t>(parts_.rows() / kLeastRows, 1, kMost);
  }

  template <class T>
  void multiply(KernelContext& c, const Tensor& y, const Tensor& out) {
    const int64_t n = y.shape().dim(1);
    const int64_t size = out.num_elements();
    const int64_t sums = this->sums(n);
    T* total = out.data<T>().data();
    const Tensor temporary = c.temporary(out.dtype(), Shape{sums - 1, size});
    T* rest = temporary.data<T>().data();
    c.run_parts(sums, [&](int64_t i) {
      add_rows<T>(y.data<const T>().data(), n, i == 0 ? total : rest + (i - 1) * size,
                  {parts_.rows() * i / sums, parts_.rows() * (i + 1) / sums});
    });
    for (const Parts::Part& part : parts_.all()) {
      if (!part.is_full) continue;
      c.parallel(part.width * n, kGrain, [&](int64_t begin, int64_t end) {
        T* to = total + part.first * n + begin;
        for (int64_t i = 1; i < sums; ++i) {
          const T* from = rest + (i - 1) * size + part.first * n + begin;
          kernels::binary<T>(kernels::BinaryOp::kAdd, to, from, to, end - begin);
        }
      });
    }
  }

  /// Sets the rows of full parts in `sum` to what rows [range.first, range.second) add to them.
  template <class T>
  void add_rows(const T* y, int64_t n, T* sum, std::pair<int64_t, int64_t> range) const {
    constexpr int64_t kBlock = 512;
    const auto [first, last] = range;
    // Once where there is no row: the sum is 0.
    for (int64_t at = first; at == first || at < last; at += kBlock) {
      const int64_t rows = std::min(kBlock, last - at);
      for (const Parts::Part& part : parts_.all()) {
        if (!part.is_full) continue;
        kernels::mat_mul<T>(
            static_cast<const T*>(part.data) + at * part.width, y + at * n, sum + part.first * n,
            {.m = part.width, .k = rows, .n = n, .trans_a = true}, at == first ? T(0) : T(1));
      }
    }
  }

  /// A row that was broadcast meets the sum of the rows of y that it stands beside.
  template <class T>
  void multiply_narrow(KernelContext& c, const Tensor& y, const Tensor& out) const {
    const int64_t n = y.shape().dim(1);
    const Shape* summed_to = nullptr;
    Tensor summed;
    for (const Parts::Part& part : parts_.all()) {
      if (part.is_full) continue;
      if (summed_to == nullptr || !(*summed_to == part.front)) {
        const Shape to = with_columns(part.front, n);
        summed = c.temporary(out.dtype(), to);
        kernels::reduce_to_shape<T>(y.data<const T>().data(), with_columns(parts_.front(), n), to,
                                    summed.data<T>().data());
        summed_to = &part.front;
      }
      kernels::mat_mul<T>(static_cast<const T*>(part.data), summed.data<const T>().data(),
                          out.data<T>().data() + part.first * n,
                          {.m = part.width, .k = part.rows, .n = n, .trans_a = true});
    }
  }

  Parts parts_;
};

/// Products of a matrix with some rows of another one, each an output.
class MatMulSplit final : public Kernel {
 public:
  MatMulSplit(std::vector<int64_t> begins, std::vector<int64_t> sizes)
      : begins_(std::move(begins)), sizes_(std::move(sizes)), products_(sizes_.size()) {}

  Status run(KernelContext& c) override {
    SR_RETURN_IF_ERROR(check_one_dtype(c));
    SR_RETURN_IF_ERROR(check_rank(c, 0, 2));
    SR_RETURN_IF_ERROR(check_rank(c, 1, 2));
    const Tensor a = c.input(0);
    const Tensor w = c.input(1);
    if (a.shape().dim(1) != w.shape().dim(1)) {
      return invalid_argument("rows of {} and {} differ in length", a.to_string(), w.to_string());
    }
    for (size_t i = 0; i < sizes_.size(); ++i) {
      if (begins_[i] > w.shape().dim(0) || sizes_[i] > w.shape().dim(0) - begins_[i]) {
        return base::invalid_argument("rows {}+{} of {}", begins_[i], sizes_[i], w.to_string());
      }
      const Shape shape{a.shape().dim(0), sizes_[i]};
      SR_RETURN_IF_ERROR(large_output(c, static_cast<int>(i), shape).status());
    }
    return tensor::with_dtype<tensor::RealTypes>(a.dtype(), [&]<class T>() -> Status {
      outs_.clear();
      for (size_t i = 0; i < sizes_.size(); ++i) {
        const Shape shape{a.shape().dim(0), sizes_[i]};
        outs_.push_back(c.output(static_cast<int>(i), shape).raw());
      }
      if (std::is_same_v<T, float> && a.shape().dim(1) >= kLong) {
        multiply_one_by_one(c, a, w);
      } else {
        multiply<T>(c, a, w);
      }
      return {};
    });
  }

 private:
  template <class T>
  void multiply(KernelContext& c, const Tensor& a, const Tensor& w) {
    const int64_t rows = a.shape().dim(0);
    const int64_t inner = a.shape().dim(1);
    const T* left = a.data<const T>().data();
    const T* right = w.data<const T>().data();
    const int64_t block = block_rows(inner, sizeof(T));
    c.parallel((rows + block - 1) / block, 1, [&](int64_t first, int64_t last) {
      for (int64_t at = first * block; at < std::min(last * block, rows); at += block) {
        const int64_t m = std::min(block, rows - at);
        for (size_t i = 0; i < sizes_.size(); ++i) {
          kernels::mat_mul<T>(left + at * inner, right + begins_[i] * inner,
                              reinterpret_cast<T*>(outs_[i]) + at * sizes_[i],
                              {.m = m, .k = inner, .n = sizes_[i], .trans_b = true});
        }
      }
    });
  }

  /// Where rows are long, reading `a` again for every part costs little beside its product.
  void multiply_one_by_one(KernelContext& c, const Tensor& a, const Tensor& w) {
    const int64_t inner = a.shape().dim(1);
    for (size_t i = 0; i < sizes_.size(); ++i) {
      if (a.num_elements() == 0 || sizes_[i] == 0) continue;
      ProductPlan plan;
      plan.dims = {.m = a.shape().dim(0), .k = inner, .n = sizes_[i], .trans_b = true};
      products_[i].run(c, plan, a.data<const float>().data(),
                       w.data<const float>().data() + begins_[i] * inner, {},
                       reinterpret_cast<float*>(outs_[i]));
    }
  }

  static constexpr int64_t kLong = 128;
  std::vector<int64_t> begins_;
  std::vector<int64_t> sizes_;
  std::vector<Product> products_;
  std::vector<std::byte*> outs_;
};

Result<std::unique_ptr<Kernel>> concat_mat_mul(const BindContext& bind) {
  const bool bias = ir::attr_or(bind.instruction.attrs, "bias", false);
  const auto name = ir::attr_or<std::string>(bind.instruction.attrs, "activation", "");
  std::optional<kernels::UnaryOp> activation;
  if (name == "Relu") activation = kernels::UnaryOp::kRelu;
  if (name == "Sigmoid") activation = kernels::UnaryOp::kSigmoid;
  if (name == "Tanh") activation = kernels::UnaryOp::kTanh;
  if (!activation && !name.empty()) return invalid_argument("there is no activation '{}'", name);
  return std::unique_ptr<Kernel>(std::make_unique<ConcatMatMul>(bias, activation));
}

Result<std::unique_ptr<Kernel>> transposed_concat_mat_mul(const BindContext& /*bind*/) {
  return std::unique_ptr<Kernel>(std::make_unique<TransposedConcatMatMul>());
}

Result<std::unique_ptr<Kernel>> mat_mul_split(const BindContext& bind) {
  const ir::AttrMap& attrs = bind.instruction.attrs;
  SR_ASSIGN_OR_RETURN(auto begins, ir::get_attr<std::vector<int64_t>>(attrs, "begins"));
  SR_ASSIGN_OR_RETURN(auto sizes, ir::get_attr<std::vector<int64_t>>(attrs, "sizes"));
  if (begins.size() != sizes.size() || sizes.size() != bind.instruction.outputs.size()) {
    return invalid_argument("{} begins and {} sizes for {} outputs", begins.size(), sizes.size(),
                            bind.instruction.outputs.size());
  }
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (begins[i] < 0 || sizes[i] < 0) {
      return invalid_argument("part {} is {}+{}", i, begins[i], sizes[i]);
    }
  }
  return std::unique_ptr<Kernel>(
      std::make_unique<MatMulSplit>(std::move(begins), std::move(sizes)));
}

}  // namespace

void register_concat_product_kernels(KernelTable* table) {
  table->add("ConcatMatMul", with_arity(2, -1, 1, like_input(concat_mat_mul)));
  table->add("TransposedConcatMatMul", with_arity(2, -1, 1, like_input(transposed_concat_mat_mul)));
  table->add("MatMulSplit", with_arity(2, 2, -1, like_input(mat_mul_split)));
}

}  // namespace sidereal::exec
