#include <algorithm>
#include <cstring>
#include <string>
#include <tuple>
#include <vector>

#include "sidereal/exec/array_util.h"
#include "sidereal/kernels/conv.h"
#include "sidereal/tensor/window.h"

namespace sidereal::exec {
namespace {

using base::invalid_argument;
using kernels::Window;
using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

Result<tensor::WindowSpec> spec_of(const BindContext& bind) {
  const ir::AttrMap& attrs = bind.instruction.attrs;
  tensor::WindowSpec spec;
  SR_ASSIGN_OR_RETURN(spec.padding, ir::get_attr<std::string>(attrs, "padding"));
  spec.strides = ir::attr_or<std::vector<int64_t>>(attrs, "strides", {1, 1});
  spec.dilations = ir::attr_or<std::vector<int64_t>>(attrs, "dilations", {1, 1});
  spec.explicit_paddings = ir::attr_or<std::vector<int64_t>>(attrs, "explicit_paddings", {});
  spec.ksize = ir::attr_or<std::vector<int64_t>>(attrs, "ksize", {});
  SR_RETURN_IF_ERROR(tensor::check_window(spec));
  return spec;
}

/// The window over images of shape `x`, k_h x k_w large.
Result<Window> window_of(const tensor::WindowSpec& spec, const Shape& x, int64_t k_h, int64_t k_w) {
  if (x.rank() != 4) {
    return invalid_argument("images of shape {}; they must be [batch, height, width, channels]",
                            x.to_string());
  }
  SR_ASSIGN_OR_RETURN(const tensor::WindowExtent h, tensor::window_extent(spec, 0, x.dim(1), k_h));
  SR_ASSIGN_OR_RETURN(const tensor::WindowExtent w, tensor::window_extent(spec, 1, x.dim(2), k_w));
  return Window{.batch = x.dim(0),
                .in_h = x.dim(1),
                .in_w = x.dim(2),
                .in_c = x.dim(3),
                .out_h = h.out,
                .out_w = w.out,
                .k_h = k_h,
                .k_w = k_w,
                .stride_h = spec.strides[0],
                .stride_w = spec.strides[1],
                .dilation_h = spec.dilations[0],
                .dilation_w = spec.dilations[1],
                .pad_top = h.pad_before,
                .pad_left = w.pad_before};
}

// --- Convolution.

enum class ConvPart { kForward, kGradInput, kGradFilter };

struct ConvOp {
  ConvPart part = ConvPart::kForward;
  bool depthwise = false;
};

/// Extents of one run: the window, the filters' last extent, and the shape of the result.
struct ConvRun {
  Window window;
  int64_t last = 0;
  Shape out;
};

Result<ConvRun> plan_conv(const ConvOp& op, const tensor::WindowSpec& spec, const Shape& x,
                          const Shape& w) {
  if (w.rank() != 4) {
    return invalid_argument("filters of shape {}; they must be [height, width, in, out]",
                            w.to_string());
  }
  ConvRun run;
  SR_ASSIGN_OR_RETURN(run.window, window_of(spec, x, w.dim(0), w.dim(1)));
  if (w.dim(2) != x.dim(3)) {
    return invalid_argument("images of shape {} have {} channels, but the filters {} take {}",
                            x.to_string(), x.dim(3), w.to_string(), w.dim(2));
  }
  run.last = w.dim(3);
  run.out = Shape{x.dim(0), run.window.out_h, run.window.out_w,
                  op.depthwise ? w.dim(2) * w.dim(3) : w.dim(3)};
  return run;
}

/// `a` and `b`: x and w, dy and w, or dy and x.
template <class T>
void run_conv(const ConvOp& op, const ConvRun& run, const T* a, const T* b,
              kernels::ConvScratch<T>* scratch, T* out) {
  const Window& window = run.window;
  switch (op.part) {
    case ConvPart::kForward:
      return op.depthwise ? kernels::depthwise_conv2d<T>(a, b, window, run.last, out)
                          : kernels::conv2d<T>(a, b, window, run.last, scratch, out);
    case ConvPart::kGradInput:
      return op.depthwise ? kernels::depthwise_grad_input<T>(a, b, window, run.last, out)
                          : kernels::conv2d_grad_input<T>(a, b, window, run.last, scratch, out);
    case ConvPart::kGradFilter:
      return op.depthwise ? kernels::depthwise_grad_filter<T>(a, b, window, run.last, out)
                          : kernels::conv2d_grad_filter<T>(a, b, window, run.last, scratch, out);
  }
}

class ConvKernel final : public Kernel {
 public:
  ConvKernel(ConvOp op, tensor::WindowSpec spec) : op_(op), spec_(std::move(spec)) {}

  Status run(KernelContext& c) override {
    const bool forward = op_.part == ConvPart::kForward;
    // Which inputs are the images and the filters.
    const int images = forward ? 0 : op_.part == ConvPart::kGradInput ? 2 : 1;
    const int filters = op_.part == ConvPart::kGradFilter ? 2 : 1;
    SR_RETURN_IF_ERROR(check_one_dtype(c));
    SR_ASSIGN_OR_RETURN(const ConvRun run,
                        plan_conv(op_, spec_, c.input(images).shape(), c.input(filters).shape()));
    if (!forward && !(c.input(0).shape() == run.out)) {
      return invalid_argument("dy has shape {}, but the convolution has {}",
                              c.input(0).shape().to_string(), run.out.to_string());
    }
    const Shape to = forward ? run.out : c.input(2).shape();
    SR_RETURN_IF_ERROR(large_output(c, 0, to).status());
    return with_compute(c.input(0).dtype(), [&]<class C>() -> Status {
      const Tensor a = widened(c, c.input(0));
      const Tensor b = widened(c, c.input(1));
      WideOutput out(c, 0, to);
      run_conv<C>(op_, run, a.data<const C>().data(), b.data<const C>().data(),
                  &std::get<kernels::ConvScratch<C>>(scratch_), out.data<C>());
      return out.store();
    });
  }

 private:
  ConvOp op_;
  tensor::WindowSpec spec_;
  std::tuple<kernels::ConvScratch<float>, kernels::ConvScratch<double>> scratch_;
};

KernelFactory conv(ConvOp op) {
  const int inputs = op.part == ConvPart::kForward ? 2 : 3;
  return with_arity(
      inputs, inputs, 1,
      like_input([op](const BindContext& bind) -> Result<std::unique_ptr<Kernel>> {
        SR_ASSIGN_OR_RETURN(tensor::WindowSpec spec, spec_of(bind));
        return std::unique_ptr<Kernel>(std::make_unique<ConvKernel>(op, std::move(spec)));
      }));
}

// --- Pooling.

Result<Window> pool_window(const tensor::WindowSpec& spec, const Shape& x, Shape* out) {
  SR_ASSIGN_OR_RETURN(const Window window, window_of(spec, x, spec.ksize[0], spec.ksize[1]));
  *out = Shape{x.dim(0), window.out_h, window.out_w, x.dim(3)};
  return window;
}

Result<tensor::WindowSpec> pool_spec(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(tensor::WindowSpec spec, spec_of(bind));
  if (spec.ksize.size() != 2) return invalid_argument("ksize must be [height, width]");
  if (spec.padding == "explicit") {
    const std::vector<int64_t>& pads = spec.explicit_paddings;
    // A window must not lie beside the image.
    if (std::max(pads[0], pads[1]) >= spec.ksize[0] ||
        std::max(pads[2], pads[3]) >= spec.ksize[1]) {
      return invalid_argument("explicit_paddings [{}] are not less than ksize [{}]",
                              fmt::join(pads, ","), fmt::join(spec.ksize, ","));
    }
  }
  return spec;
}

Result<std::unique_ptr<Kernel>> max_pool(const BindContext& bind) {
  SR_RETURN_IF_ERROR(check_slot(bind, bind.instruction.outputs[1], DType::kInt64, "output 1"));
  SR_ASSIGN_OR_RETURN(const tensor::WindowSpec spec, pool_spec(bind));
  return make_kernel([spec](KernelContext& c) -> Status {
    const Tensor x = c.input(0);
    Shape shape;
    SR_ASSIGN_OR_RETURN(const Window window, pool_window(spec, x.shape(), &shape));
    return with_compute(x.dtype(), [&]<class C>() -> Status {
      const Tensor wide = widened(c, x);
      WideOutput out(c, 0, shape);
      kernels::max_pool<C>(wide.data<const C>().data(), window, out.data<C>(),
                           c.output(1, shape).template data<int64_t>().data());
      return out.store();
    });
  });
}

Result<std::unique_ptr<Kernel>> avg_pool(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(const tensor::WindowSpec spec, pool_spec(bind));
  return make_kernel([spec](KernelContext& c) -> Status {
    const Tensor x = c.input(0);
    Shape shape;
    SR_ASSIGN_OR_RETURN(const Window window, pool_window(spec, x.shape(), &shape));
    return with_compute(x.dtype(), [&]<class C>() -> Status {
      const Tensor wide = widened(c, x);
      WideOutput out(c, 0, shape);
      kernels::avg_pool<C>(wide.data<const C>().data(), window, out.data<C>());
      return out.store();
    });
  });
}

Result<std::unique_ptr<Kernel>> avg_pool_grad(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(const tensor::WindowSpec spec, pool_spec(bind));
  return make_kernel([spec](KernelContext& c) -> Status {
    const Tensor dy = c.input(0);
    const Shape to = c.input(1).shape();
    Shape shape;
    SR_ASSIGN_OR_RETURN(const Window window, pool_window(spec, to, &shape));
    if (!(dy.shape() == shape)) {
      return invalid_argument("dy has shape {}, but the pooled value has {}",
                              dy.shape().to_string(), shape.to_string());
    }
    return with_compute(dy.dtype(), [&]<class C>() -> Status {
      const Tensor wide = widened(c, dy);
      WideOutput out(c, 0, to);
      kernels::avg_pool_grad<C>(wide.data<const C>().data(), window, out.data<C>());
      return out.store();
    });
  });
}

}  // namespace

void register_spatial_kernels(KernelTable* table) {
  table->add("Conv2D", conv({ConvPart::kForward, false}));
  table->add("Conv2DGradInput", conv({ConvPart::kGradInput, false}));
  table->add("Conv2DGradFilter", conv({ConvPart::kGradFilter, false}));
  table->add("DepthwiseConv2D", conv({ConvPart::kForward, true}));
  table->add("DepthwiseConv2DGradInput", conv({ConvPart::kGradInput, true}));
  table->add("DepthwiseConv2DGradFilter", conv({ConvPart::kGradFilter, true}));
  table->add("MaxPool", with_arity(1, 1, 2, output_like(0, 0, max_pool)));
  table->add("AvgPool", with_arity(1, 1, 1, like_input(avg_pool)));
  table->add("AvgPoolGrad", with_arity(2, 2, 1, like_input(avg_pool_grad)));
}

}  // namespace sidereal::exec
