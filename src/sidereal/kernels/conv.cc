#include "sidereal/kernels/conv.h"

#include <algorithm>
#include <cstring>

#include "sidereal/kernels/internal/nan.h"
#include "sidereal/kernels/matmul.h"

namespace sidereal::kernels {
namespace {

/// The part of the filter's rows or columns that lies on the image, for one place of the window.
struct Span {
  int64_t first;  // In the filter.
  int64_t last;
  int64_t origin;  // Of the window in the image: index = origin + i * dilation.
};

Span span_of(int64_t out, int64_t stride, int64_t pad, int64_t k, int64_t dilation, int64_t in) {
  const int64_t origin = out * stride - pad;
  const int64_t first = origin < 0 ? (-origin + dilation - 1) / dilation : 0;
  const int64_t room = in - origin;
  const int64_t last = room <= 0 ? 0 : std::min(k, (room + dilation - 1) / dilation);
  return {std::min(first, k), std::max(std::min(first, k), last), origin};
}

Span rows_of(const Window& w, int64_t y) {
  return span_of(y, w.stride_h, w.pad_top, w.k_h, w.dilation_h, w.in_h);
}
Span columns_of(const Window& w, int64_t x) {
  return span_of(x, w.stride_w, w.pad_left, w.k_w, w.dilation_w, w.in_w);
}

/// Calls f(row of patches, offset of the patch's pixel in the image, i, j) for every pixel under
/// the window at every place of one image.
template <class F>
void for_each_pixel(const Window& w, F f) {
  for (int64_t y = 0; y < w.out_h; ++y) {
    const Span rows = rows_of(w, y);
    for (int64_t x = 0; x < w.out_w; ++x) {
      const Span columns = columns_of(w, x);
      for (int64_t i = rows.first; i < rows.last; ++i) {
        const int64_t in_y = rows.origin + i * w.dilation_h;
        for (int64_t j = columns.first; j < columns.last; ++j) {
          const int64_t in_x = columns.origin + j * w.dilation_w;
          f(y * w.out_w + x, (in_y * w.in_w + in_x) * w.in_c, i, j);
        }
      }
    }
  }
}

/// True when patches are the pixels themselves: one product does it.
bool is_pointwise(const Window& w) {
  return w.k_h == 1 && w.k_w == 1 && w.stride_h == 1 && w.stride_w == 1 && w.pad_top == 0 &&
         w.pad_left == 0 && w.out_h == w.in_h && w.out_w == w.in_w;
}

int64_t image_size(const Window& w) { return w.in_h * w.in_w * w.in_c; }
int64_t places(const Window& w) { return w.out_h * w.out_w; }
int64_t patch_size(const Window& w) { return w.k_h * w.k_w * w.in_c; }

/// The patches of one image: [places, patch].
template <class T>
void to_patches(const T* image, const Window& w, T* patches) {
  const int64_t patch = patch_size(w);
  std::fill_n(patches, places(w) * patch, T(0));
  for_each_pixel(w, [&](int64_t place, int64_t pixel, int64_t i, int64_t j) {
    std::memcpy(patches + place * patch + (i * w.k_w + j) * w.in_c, image + pixel,
                w.in_c * sizeof(T));
  });
}

/// Adds patches to the image they came from.
template <class T>
void add_patches(const T* patches, const Window& w, T* image) {
  const int64_t patch = patch_size(w);
  for_each_pixel(w, [&](int64_t place, int64_t pixel, int64_t i, int64_t j) {
    const T* from = patches + place * patch + (i * w.k_w + j) * w.in_c;
    T* to = image + pixel;
    for (int64_t c = 0; c < w.in_c; ++c) to[c] += from[c];
  });
}

}  // namespace

template <class T>
void conv2d(const T* x, const T* w, const Window& window, int64_t out_c, ConvScratch<T>* scratch,
            T* out) {
  MatMulDims dims{.m = places(window), .k = patch_size(window), .n = out_c};
  if (is_pointwise(window)) {
    dims.m *= window.batch;
    mat_mul<T>(x, w, out, dims);
    return;
  }
  scratch->resize(dims.m * dims.k);
  for (int64_t b = 0; b < window.batch; ++b) {
    to_patches(x + b * image_size(window), window, scratch->data());
    mat_mul<T>(scratch->data(), w, out + b * dims.m * out_c, dims);
  }
}

template <class T>
void conv2d_grad_input(const T* dy, const T* w, const Window& window, int64_t out_c,
                       ConvScratch<T>* scratch, T* dx) {
  MatMulDims dims{.m = places(window), .k = out_c, .n = patch_size(window), .trans_b = true};
  if (is_pointwise(window)) {
    dims.m *= window.batch;
    mat_mul<T>(dy, w, dx, dims);
    return;
  }
  scratch->resize(dims.m * dims.n);
  std::fill_n(dx, window.batch * image_size(window), T(0));
  for (int64_t b = 0; b < window.batch; ++b) {
    mat_mul<T>(dy + b * dims.m * out_c, w, scratch->data(), dims);
    add_patches(scratch->data(), window, dx + b * image_size(window));
  }
}

template <class T>
void conv2d_grad_filter(const T* dy, const T* x, const Window& window, int64_t out_c,
                        ConvScratch<T>* scratch, T* dw) {
  MatMulDims dims{.m = patch_size(window), .k = places(window), .n = out_c, .trans_a = true};
  if (is_pointwise(window)) {
    dims.k *= window.batch;
    mat_mul<T>(x, dy, dw, dims);
    return;
  }
  scratch->resize(dims.m * dims.k);
  if (window.batch == 0) std::fill_n(dw, dims.m * dims.n, T(0));
  for (int64_t b = 0; b < window.batch; ++b) {
    to_patches(x + b * image_size(window), window, scratch->data());
    mat_mul<T>(scratch->data(), dy + b * dims.k * out_c, dw, dims, b == 0 ? T(0) : T(1));
  }
}

template <class T>
void depthwise_conv2d(const T* x, const T* w, const Window& window, int64_t m, T* out) {
  const int64_t out_c = window.in_c * m;
  std::fill_n(out, window.batch * places(window) * out_c, T(0));
  for (int64_t b = 0; b < window.batch; ++b, x += image_size(window)) {
    for_each_pixel(window, [&](int64_t place, int64_t pixel, int64_t i, int64_t j) {
      T* to = out + (b * places(window) + place) * out_c;
      const T* filter = w + (i * window.k_w + j) * out_c;
      for (int64_t c = 0; c < window.in_c; ++c) {
        for (int64_t q = 0; q < m; ++q) to[c * m + q] += x[pixel + c] * filter[c * m + q];
      }
    });
  }
}

template <class T>
void depthwise_grad_input(const T* dy, const T* w, const Window& window, int64_t m, T* dx) {
  const int64_t out_c = window.in_c * m;
  std::fill_n(dx, window.batch * image_size(window), T(0));
  for (int64_t b = 0; b < window.batch; ++b, dx += image_size(window)) {
    for_each_pixel(window, [&](int64_t place, int64_t pixel, int64_t i, int64_t j) {
      const T* from = dy + (b * places(window) + place) * out_c;
      const T* filter = w + (i * window.k_w + j) * out_c;
      for (int64_t c = 0; c < window.in_c; ++c) {
        T sum = 0;
        for (int64_t q = 0; q < m; ++q) sum += from[c * m + q] * filter[c * m + q];
        dx[pixel + c] += sum;
      }
    });
  }
}

template <class T>
void depthwise_grad_filter(const T* dy, const T* x, const Window& window, int64_t m, T* dw) {
  const int64_t out_c = window.in_c * m;
  std::fill_n(dw, window.k_h * window.k_w * out_c, T(0));
  for (int64_t b = 0; b < window.batch; ++b, x += image_size(window)) {
    for_each_pixel(window, [&](int64_t place, int64_t pixel, int64_t i, int64_t j) {
      const T* from = dy + (b * places(window) + place) * out_c;
      T* to = dw + (i * window.k_w + j) * out_c;
      for (int64_t c = 0; c < window.in_c; ++c) {
        for (int64_t q = 0; q < m; ++q) to[c * m + q] += x[pixel + c] * from[c * m + q];
      }
    });
  }
}

template <class T>
void max_pool(const T* x, const Window& window, T* out, int64_t* argmax) {
  const int64_t c = window.in_c;
  std::fill_n(argmax, window.batch * places(window) * c, int64_t{-1});
  for (int64_t b = 0; b < window.batch; ++b) {
    const int64_t image = b * image_size(window);
    for_each_pixel(window, [&](int64_t place, int64_t pixel, int64_t, int64_t) {
      const int64_t to = (b * places(window) + place) * c;
      for (int64_t q = 0; q < c; ++q) {
        const int64_t from = image + pixel + q;
        const T value = x[from];
        const bool is_nan = internal::is_nan(value) && !internal::is_nan(out[to + q]);
        if (argmax[to + q] >= 0 && !(value > out[to + q]) && !is_nan) continue;
        out[to + q] = value;
        argmax[to + q] = from;
      }
    });
  }
}

template <class T>
void avg_pool(const T* x, const Window& window, T* out) {
  const int64_t c = window.in_c;
  std::fill_n(out, window.batch * places(window) * c, T(0));
  for (int64_t b = 0; b < window.batch; ++b, x += image_size(window)) {
    for_each_pixel(window, [&](int64_t place, int64_t pixel, int64_t, int64_t) {
      T* to = out + (b * places(window) + place) * c;
      for (int64_t q = 0; q < c; ++q) to[q] += x[pixel + q];
    });
    for (int64_t place = 0; place < places(window); ++place) {
      const Span rows = rows_of(window, place / window.out_w);
      const Span columns = columns_of(window, place % window.out_w);
      const int64_t count = (rows.last - rows.first) * (columns.last - columns.first);
      T* to = out + (b * places(window) + place) * c;
      for (int64_t q = 0; count > 0 && q < c; ++q) to[q] /= static_cast<T>(count);
    }
  }
}

template <class T>
void avg_pool_grad(const T* dy, const Window& window, T* dx) {
  const int64_t c = window.in_c;
  std::fill_n(dx, window.batch * image_size(window), T(0));
  for (int64_t b = 0; b < window.batch; ++b, dx += image_size(window)) {
    for_each_pixel(window, [&](int64_t place, int64_t pixel, int64_t, int64_t) {
      const Span rows = rows_of(window, place / window.out_w);
      const Span columns = columns_of(window, place % window.out_w);
      const auto count = static_cast<T>((rows.last - rows.first) * (columns.last - columns.first));
      const T* from = dy + (b * places(window) + place) * c;
      for (int64_t q = 0; q < c; ++q) dx[pixel + q] += from[q] / count;
    });
  }
}

#define SR_INSTANTIATE(T)                                                                       \
  template void conv2d(const T*, const T*, const Window&, int64_t, ConvScratch<T>*, T*);        \
  template void conv2d_grad_input(const T*, const T*, const Window&, int64_t, ConvScratch<T>*,  \
                                  T*);                                                          \
  template void conv2d_grad_filter(const T*, const T*, const Window&, int64_t, ConvScratch<T>*, \
                                   T*);                                                         \
  template void depthwise_conv2d(const T*, const T*, const Window&, int64_t, T*);               \
  template void depthwise_grad_input(const T*, const T*, const Window&, int64_t, T*);           \
  template void depthwise_grad_filter(const T*, const T*, const Window&, int64_t, T*);          \
  template void max_pool(const T*, const Window&, T*, int64_t*);                                \
  template void avg_pool(const T*, const Window&, T*);                                          \
  template void avg_pool_grad(const T*, const Window&, T*);
SR_INSTANTIATE(float)
SR_INSTANTIATE(double)
#undef SR_INSTANTIATE

}  // namespace sidereal::kernels
