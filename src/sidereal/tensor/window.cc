#include "sidereal/tensor/window.h"

#include <algorithm>

namespace sidereal::tensor {
namespace {

constexpr int64_t kMax = int64_t{1} << 24;  // Of every number here, so that none overflows.

Status check_pair(const std::vector<int64_t>& pair, const char* what) {
  const bool fits =
      pair.size() == 2 && pair[0] >= 1 && pair[1] >= 1 && pair[0] <= kMax && pair[1] <= kMax;
  if (fits) return {};
  return base::invalid_argument("{} is [{}]; it must be two positive numbers, [height, width]",
                                what, fmt::join(pair, ","));
}

}  // namespace

Status check_window(const WindowSpec& spec) {
  SR_RETURN_IF_ERROR(check_pair(spec.strides, "strides"));
  SR_RETURN_IF_ERROR(check_pair(spec.dilations, "dilations"));
  if (!spec.ksize.empty()) SR_RETURN_IF_ERROR(check_pair(spec.ksize, "ksize"));
  const bool is_explicit = spec.padding == "explicit";
  if (!is_explicit && spec.padding != "same" && spec.padding != "valid") {
    return base::invalid_argument("padding is '{}'; it must be 'same', 'valid' or 'explicit'",
                                  spec.padding);
  }
  if (!is_explicit) {
    if (spec.explicit_paddings.empty()) return {};
    return base::invalid_argument("explicit_paddings are given, but padding is '{}'", spec.padding);
  }
  bool fits = spec.explicit_paddings.size() == 4;
  for (const int64_t pad : spec.explicit_paddings) fits = fits && pad >= 0 && pad <= kMax;
  if (fits) return {};
  return base::invalid_argument("explicit_paddings is [{}]; it must be top, bottom, left, right",
                                fmt::join(spec.explicit_paddings, ","));
}

Result<WindowExtent> window_extent(const WindowSpec& spec, int i, int64_t in, int64_t k) {
  if (k == 0 || k > kMax || in > (int64_t{1} << 40)) {
    return base::invalid_argument("a window of extent {} over {} elements", k, in);
  }
  const int64_t stride = spec.strides[i];
  const bool is_explicit = spec.padding == "explicit";
  WindowExtent out;
  if (is_explicit) out.pad_before = spec.explicit_paddings[2 * i];
  if (in < 0) return out;
  if (spec.padding == "same") {
    out.out = (in + stride - 1) / stride;
    if (k < 0) return out;
    const int64_t reach = (k - 1) * spec.dilations[i] + 1;
    out.pad_before = std::max<int64_t>((out.out - 1) * stride + reach - in, 0) / 2;
    return out;
  }
  if (k < 0) return out;
  const int64_t reach = (k - 1) * spec.dilations[i] + 1;
  const int64_t around =
      is_explicit ? spec.explicit_paddings[2 * i] + spec.explicit_paddings[2 * i + 1] : 0;
  out.out = in + around < reach ? 0 : (in + around - reach) / stride + 1;
  return out;
}

}  // namespace sidereal::tensor
