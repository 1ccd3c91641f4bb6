#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sidereal/base/status.h"

namespace sidereal::tensor {

/// How a window moves over images [batch, height, width, channels]: the attributes of convolution
/// and pooling. Pairs are [height, width].
struct WindowSpec {
  std::string padding;  ///< "same", "valid" or "explicit".
  std::vector<int64_t> strides = {1, 1};
  std::vector<int64_t> dilations = {1, 1};
  std::vector<int64_t> explicit_paddings = {};  ///< Top, bottom, left, right; explicit only.
  std::vector<int64_t> ksize = {};              ///< Of pooling.
};

/// kInvalidArgument saying which part of `spec` makes no sense.
Status check_window(const WindowSpec& spec);

/// Along one direction: places of the window, and elements before the image.
struct WindowExtent {
  int64_t out = -1;  ///< -1: not known.
  int64_t pad_before = 0;
};

/// For direction `i` (0 height, 1 width) of an image of extent `in` and a window of extent `k`,
/// either -1 when not known. TensorFlow's rules (GetWindowedOutputSize): with "same" there are
/// ceil(in / stride) places and the odd element of padding is behind. `spec` is checked.
/// kInvalidArgument for a window that is not positive.
Result<WindowExtent> window_extent(const WindowSpec& spec, int i, int64_t in, int64_t k);

}  // namespace sidereal::tensor
