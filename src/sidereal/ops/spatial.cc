#include <string>
#include <utility>

#include "sidereal/ops/args.h"
#include "sidereal/tensor/window.h"

/// Convolution and pooling of images [batch, height, width, channels].
namespace sidereal::ops::internal {
namespace {

Result<tensor::WindowSpec> spec_of(const AttrMap& attrs) {
  tensor::WindowSpec spec;
  SR_ASSIGN_OR_RETURN(spec.padding, ir::get_attr<std::string>(attrs, "padding"));
  spec.strides = ir::attr_or<std::vector<int64_t>>(attrs, "strides", {1, 1});
  spec.dilations = ir::attr_or<std::vector<int64_t>>(attrs, "dilations", {1, 1});
  spec.explicit_paddings = ir::attr_or<std::vector<int64_t>>(attrs, "explicit_paddings", {});
  spec.ksize = ir::attr_or<std::vector<int64_t>>(attrs, "ksize", {});
  return spec;
}

/// Height and width of what a window of k_h x k_w makes of images of shape `x`.
Status append_out(const tensor::WindowSpec& spec, const Shape& x, int64_t k_h, int64_t k_w,
                  Shape* out) {
  SR_RETURN_IF_ERROR(tensor::check_window(spec));
  for (int i = 0; i < 2; ++i) {
    SR_ASSIGN_OR_RETURN(
        const tensor::WindowExtent extent,
        tensor::window_extent(spec, i, x.has_rank() ? x.dim(1 + i) : -1, i == 0 ? k_h : k_w));
    out->append(extent.out);
  }
  return {};
}

/// The shape of a convolution of images `x` by filters `w`; `depthwise`: filters [.., c, m].
Result<Shape> conv_shape(const AttrMap& attrs, const Shape& x, const Shape& w, bool depthwise) {
  SR_ASSIGN_OR_RETURN(const tensor::WindowSpec spec, spec_of(attrs));
  const bool known = w.has_rank();
  if (x.has_rank() && known) {
    const Result<int64_t> channels = merge_extent(x.dim(3), w.dim(2));
    if (!channels.ok()) {
      return base::invalid_argument(
          "images of shape {} have {} channels, but the filters {} take "
          "{}",
          x.to_string(), x.dim(3), w.to_string(), w.dim(2));
    }
  }
  Shape out{x.has_rank() ? x.dim(0) : -1};
  SR_RETURN_IF_ERROR(append_out(spec, x, known ? w.dim(0) : -1, known ? w.dim(1) : -1, &out));
  int64_t channels = known ? w.dim(3) : -1;
  if (depthwise && channels >= 0) channels = w.dim(2) < 0 ? -1 : w.dim(2) * channels;
  out.append(channels);
  return out;
}

Status check_images(const InferContext& c, size_t images, size_t filters) {
  SR_RETURN_IF_ERROR(require(c, sets::kFloats));
  SR_RETURN_IF_ERROR(require_rank(c, images, 4));
  return require_rank(c, filters, 4);
}

bool is_depthwise(const InferContext& c) { return c.schema.name.starts_with("Depthwise"); }

Status infer_conv(const InferContext& c) {
  SR_RETURN_IF_ERROR(check_images(c, 0, 1));
  SR_ASSIGN_OR_RETURN(Shape shape,
                      conv_shape(c.attrs, c.inputs[0].shape, c.inputs[1].shape, is_depthwise(c)));
  return put(c, c.inputs[0].dtype, std::move(shape));
}

/// (dy, w, x) -> like x
Status infer_grad_input(const InferContext& c) {
  SR_RETURN_IF_ERROR(check_images(c, 2, 1));
  SR_ASSIGN_OR_RETURN(const Shape shape,
                      conv_shape(c.attrs, c.inputs[2].shape, c.inputs[1].shape, is_depthwise(c)));
  SR_RETURN_IF_ERROR(merge_shapes(shape, c.inputs[0].shape).status());
  return put(c, c.inputs[0].dtype, c.inputs[2].shape);
}

/// (dy, x, w) -> like w
Status infer_grad_filter(const InferContext& c) {
  SR_RETURN_IF_ERROR(check_images(c, 1, 2));
  SR_ASSIGN_OR_RETURN(const Shape shape,
                      conv_shape(c.attrs, c.inputs[1].shape, c.inputs[2].shape, is_depthwise(c)));
  SR_RETURN_IF_ERROR(merge_shapes(shape, c.inputs[0].shape).status());
  return put(c, c.inputs[0].dtype, c.inputs[2].shape);
}

// A convolution and its two gradients are linear in each of two inputs, and each is the gradient of
// the others.

std::string family(const GradContext& c) {
  return c.node.op.starts_with("Depthwise") ? "DepthwiseConv2D" : "Conv2D";
}

Status grad_conv(GradContext& c) {
  const Output dy = c.output_grads[0];
  const Output x = c.node.inputs[0];
  const Output w = c.node.inputs[1];
  (*c.input_grads)[0] = c.builder.add(family(c) + "GradInput", {dy, w, x}, c.node.attrs);
  (*c.input_grads)[1] = c.builder.add(family(c) + "GradFilter", {dy, x, w}, c.node.attrs);
  return {};
}

Status grad_grad_input(GradContext& c) {
  const Output g = c.output_grads[0];
  const Output dy = c.node.inputs[0];
  const Output w = c.node.inputs[1];
  (*c.input_grads)[0] = c.builder.add(family(c), {g, w}, c.node.attrs);
  (*c.input_grads)[1] = c.builder.add(family(c) + "GradFilter", {dy, g, w}, c.node.attrs);
  return {};
}

Status grad_grad_filter(GradContext& c) {
  const Output g = c.output_grads[0];
  const Output dy = c.node.inputs[0];
  const Output x = c.node.inputs[1];
  (*c.input_grads)[0] = c.builder.add(family(c), {x, g}, c.node.attrs);
  (*c.input_grads)[1] = c.builder.add(family(c) + "GradInput", {dy, g, x}, c.node.attrs);
  return {};
}

// --- Pooling.

Result<Shape> pool_shape(const AttrMap& attrs, const Shape& x) {
  SR_ASSIGN_OR_RETURN(const tensor::WindowSpec spec, spec_of(attrs));
  if (spec.ksize.size() != 2) return base::invalid_argument("ksize must be [height, width]");
  Shape out{x.has_rank() ? x.dim(0) : -1};
  SR_RETURN_IF_ERROR(append_out(spec, x, spec.ksize[0], spec.ksize[1], &out));
  out.append(x.has_rank() ? x.dim(3) : -1);
  return out;
}

Status infer_pool(const InferContext& c) {
  SR_RETURN_IF_ERROR(require(c, sets::kFloats));
  SR_RETURN_IF_ERROR(require_rank(c, 0, 4));
  SR_ASSIGN_OR_RETURN(const Shape shape, pool_shape(c.attrs, c.inputs[0].shape));
  SR_RETURN_IF_ERROR(put(c, c.inputs[0].dtype, shape));
  if (c.schema.name == "MaxPool") return put(c, DType::kInt64, shape);
  return {};
}

Status infer_avg_pool_grad(const InferContext& c) {
  SR_RETURN_IF_ERROR(require(c, sets::kFloats));
  SR_RETURN_IF_ERROR(require_rank(c, 1, 4));
  SR_ASSIGN_OR_RETURN(const Shape shape, pool_shape(c.attrs, c.inputs[1].shape));
  SR_RETURN_IF_ERROR(merge_shapes(shape, c.inputs[0].shape).status());
  return put(c, c.inputs[0].dtype, c.inputs[1].shape);
}

/// What came from an element goes back to it: a gather and its gradient over the flat image.
Status grad_max_pool(GradContext& c) {
  if (!c.output_grads[0].valid()) return {};
  ir::Builder& b = c.builder;
  const AttrMap flat = {{"shape", std::vector<int64_t>{-1}}};
  const Output x = c.node.inputs[0];
  const Output dy = b.add("Reshape", {c.output_grads[0]}, flat);
  const Output argmax = b.add("Reshape", {Output{c.node.id, 1}}, flat);
  const Output flat_x = b.add("Reshape", {x}, flat);
  const Output dx = b.add("GatherGrad", {dy, argmax, flat_x});
  (*c.input_grads)[0] = b.add("ReshapeLike", {dx, x});
  return {};
}

Status grad_avg_pool(GradContext& c) {
  (*c.input_grads)[0] =
      c.builder.add("AvgPoolGrad", {c.output_grads[0], c.node.inputs[0]}, c.node.attrs);
  return {};
}

Status grad_avg_pool_grad(GradContext& c) {
  (*c.input_grads)[0] = c.builder.add("AvgPool", {c.output_grads[0]}, c.node.attrs);
  return {};
}

std::vector<ir::AttrSpec> window_attrs(bool pool) {
  std::vector<ir::AttrSpec> attrs = {
      {"strides", "ints", false, "How far the window moves, [height, width]; 1 if absent."},
      {"padding", "string", true,
       "'same': as many places as strides fit into the image; 'valid': only where the window is on "
       "the image; 'explicit'."},
      {"explicit_paddings", "ints", false, "Zeros around: top, bottom, left, right."}};
  if (pool) {
    attrs.push_back({"ksize", "ints", true, "The window, [height, width]."});
  } else {
    attrs.push_back({"dilations", "ints", false,
                     "Distance of the filter's elements, [height, width]; 1 if absent."});
  }
  return attrs;
}

using InferRule = Status (*)(const InferContext&);
using GradientRule = Status (*)(GradContext&);

void add_conv(OpRegistry* registry, const char* name, const char* doc, int inputs, InferRule infer,
              GradientRule gradient) {
  registry->add({.name = name,
                 .doc = doc,
                 .min_inputs = inputs,
                 .max_inputs = inputs,
                 .attrs = window_attrs(false),
                 .infer = infer,
                 .gradient = gradient});
}

void register_pools(OpRegistry* registry) {
  registry->add({.name = "MaxPool",
                 .doc = "x[b, h, w, c] -> the greatest elements under a window that moves over the "
                        "images, and their int64 indices in the flat x (tf.nn.max_pool2d).",
                 .min_inputs = 1,
                 .max_inputs = 1,
                 .attrs = window_attrs(true),
                 .infer = infer_pool,
                 .gradient = grad_max_pool});
  registry->add({.name = "AvgPool",
                 .doc = "x[b, h, w, c] -> the means of the elements under a window that moves over "
                        "the images; padding does not count (tf.nn.avg_pool2d).",
                 .min_inputs = 1,
                 .max_inputs = 1,
                 .attrs = window_attrs(true),
                 .infer = infer_pool,
                 .gradient = grad_avg_pool});
  registry->add({.name = "AvgPoolGrad",
                 .doc = "(dy, x) -> the gradient of AvgPool by x.",
                 .min_inputs = 2,
                 .max_inputs = 2,
                 .attrs = window_attrs(true),
                 .infer = infer_avg_pool_grad,
                 .gradient = grad_avg_pool_grad});
}

}  // namespace

void register_spatial(OpRegistry* registry) {
  add_conv(registry, "Conv2D",
           "(x[b, h, w, c], filters[kh, kw, c, o]) -> x convolved to [b, h', w', o] "
           "(tf.nn.conv2d).",
           2, infer_conv, grad_conv);
  add_conv(registry, "Conv2DGradInput", "(dy, filters, x) -> the gradient of Conv2D by x.", 3,
           infer_grad_input, grad_grad_input);
  add_conv(registry, "Conv2DGradFilter", "(dy, x, filters) -> the gradient of Conv2D by filters.",
           3, infer_grad_filter, grad_grad_filter);
  add_conv(registry, "DepthwiseConv2D",
           "(x[b, h, w, c], filters[kh, kw, c, m]) -> each channel convolved by m filters of its "
           "own to [b, h', w', c m] (tf.nn.depthwise_conv2d).",
           2, infer_conv, grad_conv);
  add_conv(registry, "DepthwiseConv2DGradInput",
           "(dy, filters, x) -> the gradient of DepthwiseConv2D by x.", 3, infer_grad_input,
           grad_grad_input);
  add_conv(registry, "DepthwiseConv2DGradFilter",
           "(dy, x, filters) -> the gradient of DepthwiseConv2D by filters.", 3, infer_grad_filter,
           grad_grad_filter);
  register_pools(registry);
}

}  // namespace sidereal::ops::internal
