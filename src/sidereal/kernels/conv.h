#pragma once

#include <cstdint>
#include <vector>

/// Convolution and pooling of images [batch, height, width, channels]. T is float or double.
namespace sidereal::kernels {

/// A window that moves over an image.
struct Window {
  int64_t batch = 0;
  int64_t in_h = 0;
  int64_t in_w = 0;
  int64_t in_c = 0;
  int64_t out_h = 0;
  int64_t out_w = 0;
  int64_t k_h = 1;
  int64_t k_w = 1;
  int64_t stride_h = 1;
  int64_t stride_w = 1;
  int64_t dilation_h = 1;
  int64_t dilation_w = 1;
  int64_t pad_top = 0;   ///< Rows before the image; those behind follow from the other extents.
  int64_t pad_left = 0;  ///< Columns before the image.
};

/// Memory of the convolutions, kept from call to call.
template <class T>
using ConvScratch = std::vector<T>;

/// out[b, y, x, o] = sum over i, j, c of x[b, y * stride + i * dilation - pad, ..., c] w[i, j, c,
/// o]; w is [k_h, k_w, in_c, out_c].
template <class T>
void conv2d(const T* x, const T* w, const Window& window, int64_t out_c, ConvScratch<T>* scratch,
            T* out);

/// The gradient of conv2d by x: dx, of the shape of x.
template <class T>
void conv2d_grad_input(const T* dy, const T* w, const Window& window, int64_t out_c,
                       ConvScratch<T>* scratch, T* dx);

/// The gradient of conv2d by w: dw, of the shape of w.
template <class T>
void conv2d_grad_filter(const T* dy, const T* x, const Window& window, int64_t out_c,
                        ConvScratch<T>* scratch, T* dw);

/// Each channel with filters of its own: out[b, y, x, c * m + q] = sum over i, j of
/// x[..., c] w[i, j, c, q]; w is [k_h, k_w, in_c, m].
template <class T>
void depthwise_conv2d(const T* x, const T* w, const Window& window, int64_t m, T* out);
/// The gradient of depthwise_conv2d by x.
template <class T>
void depthwise_grad_input(const T* dy, const T* w, const Window& window, int64_t m, T* dx);
/// The gradient of depthwise_conv2d by w.
template <class T>
void depthwise_grad_filter(const T* dy, const T* x, const Window& window, int64_t m, T* dw);

/// The greatest element under the window, by channel, and its index in x (the first one of equals;
/// a NaN is greater than all). Every window must hold an element of the image.
template <class T>
void max_pool(const T* x, const Window& window, T* out, int64_t* argmax);

/// The mean of the elements of the image under the window, by channel; 0 where there is none.
template <class T>
void avg_pool(const T* x, const Window& window, T* out);
/// The gradient of avg_pool.
template <class T>
void avg_pool_grad(const T* dy, const Window& window, T* dx);

}  // namespace sidereal::kernels
