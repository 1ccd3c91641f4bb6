#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "sidereal/exec/string_util.h"
#include "sidereal/parse/csv.h"

/// Records of text to columns.
namespace sidereal::exec {
namespace {

using base::invalid_argument;
using tensor::DType;
using tensor::Tensor;

/// Types of columns.
using Columns =
    tensor::Join<tensor::RealTypes, tensor::IntegerTypes, tensor::TypeList<std::string_view>>;

struct CsvOptions {
  parse::CsvStyle style;
  std::string na_value;
  std::vector<int64_t> select;  ///< Field of each output; empty: field i is output i.
};

Result<CsvOptions> csv_options(const BindContext& bind) {
  const ir::AttrMap& attrs = bind.instruction.attrs;
  CsvOptions options;
  const auto delimiter = ir::attr_or<std::string>(attrs, "field_delim", ",");
  if (delimiter.size() != 1) return invalid_argument("field_delim must be one byte");
  options.style = {.delimiter = delimiter[0],
                   .quotes = ir::attr_or<bool>(attrs, "use_quote_delim", true),
                   .strict = true};
  options.na_value = ir::attr_or<std::string>(attrs, "na_value", "");
  options.select = ir::attr_or<std::vector<int64_t>>(attrs, "select_cols", {});
  for (const int64_t column : options.select) {
    if (column < 0) return invalid_argument("select_cols names column {}", column);
  }
  if (!options.select.empty() && options.select.size() != bind.instruction.outputs.size()) {
    return invalid_argument("select_cols does not fit the outputs");
  }
  if (bind.instruction.inputs.size() != bind.instruction.outputs.size() + 1) {
    return invalid_argument("{} inputs for {} columns", bind.instruction.inputs.size(),
                            bind.instruction.outputs.size());
  }
  return options;
}

/// What DecodeCsv keeps from run to run.
class CsvDecoder {
 public:
  explicit CsvDecoder(CsvOptions options) : options_(std::move(options)) {}

  Status run(KernelContext& c) {
    SR_RETURN_IF_ERROR(check_dtype(c, 0, DType::kString));
    outputs_.clear();
    unquoted_ = std::make_shared<std::deque<std::string>>();
    for (int i = 0; i < c.num_outputs(); ++i) {
      SR_RETURN_IF_ERROR(check_dtype(c, i + 1, c.output_dtype(i)));
      if (c.input(i + 1).num_elements() > 1) {
        return invalid_argument("the default of column {} has {} elements", i,
                                c.input(i + 1).num_elements());
      }
      outputs_.push_back(c.output(i, c.input(0).shape()));
    }
    const auto records = c.in<std::string_view>(0);
    for (size_t row = 0; row < records.size(); ++row) {
      const Status status = decode(c, records[row], row);
      if (!status.ok()) {
        return invalid_argument("record {}: {}; the record is {}", row, base::message_of(status),
                                parse::shown(records[row]));
      }
    }
    for (Tensor& out : outputs_) {
      if (out.dtype() == DType::kString && !unquoted_->empty()) out.buffer()->keep(unquoted_);
    }
    outputs_.clear();
    unquoted_.reset();
    return {};
  }

 private:
  Status decode(const KernelContext& c, std::string_view record, size_t row) {
    SR_RETURN_IF_ERROR(parse::split_csv(record, options_.style, &fields_, &scratch_));
    const bool all = options_.select.empty();
    if (all && fields_.size() != outputs_.size()) {
      return invalid_argument("{} fields where {} columns are expected", fields_.size(),
                              outputs_.size());
    }
    for (size_t i = 0; i < outputs_.size(); ++i) {
      const size_t field = all ? i : static_cast<size_t>(options_.select[i]);
      if (field >= fields_.size()) {
        return invalid_argument("{} fields, but field {} is selected", fields_.size(), field);
      }
      SR_RETURN_IF_ERROR(tensor::with_dtype<Columns>(outputs_[i].dtype(), [&]<class T>() -> Status {
        return take<T>(c.in<T>(static_cast<int>(i) + 1), fields_[field], field,
                       &outputs_[i].template data<T>()[row]);
      }));
    }
    return {};
  }

  template <class T>
  Status take(std::span<const T> fallback, std::string_view text, size_t field, T* out) {
    if (text.empty() || text == options_.na_value) {
      if (fallback.empty()) return invalid_argument("field {} is required but empty", field);
      *out = fallback[0];
    } else if constexpr (std::is_same_v<T, std::string_view>) {
      *out = lasting(text);
    } else if (!parse::parse_number(text, out)) {
      return invalid_argument("field {} is {}, which is no {}", field, parse::shown(text),
                              tensor::name_of(tensor::kDTypeOf<T>));
    }
    return {};
  }

  /// `text` where it stays as long as the outputs: a field that lost its quotes is copied.
  std::string_view lasting(std::string_view text) {
    const std::less<> before;
    const char* begin = scratch_.data();
    if (before(text.data(), begin) || !before(text.data(), begin + scratch_.size())) return text;
    return unquoted_->emplace_back(text);
  }

  CsvOptions options_;
  std::vector<Tensor> outputs_;  // Of the run.
  std::vector<std::string_view> fields_;
  std::string scratch_;
  std::shared_ptr<std::deque<std::string>> unquoted_;  // Of the run.
};

Result<std::unique_ptr<Kernel>> decode_csv(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(CsvOptions options, csv_options(bind));
  return make_kernel([decoder = CsvDecoder(std::move(options))](KernelContext& c) mutable {
    return decoder.run(c);
  });
}

}  // namespace

void register_csv_kernels(KernelTable* table) {
  table->add("DecodeCsv", with_arity(2, -1, -1, decode_csv));
}

}  // namespace sidereal::exec
