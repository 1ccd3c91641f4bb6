#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "sidereal/exec/testing/one_program.h"
#include "sidereal/ir/builder.h"

/// Random nests of calls, branches and loops, for tests. All values are float64[3,3].
namespace sidereal::exec {

inline const tensor::Shape kControlShape{3, 3};

/// Something that makes two values of three.
class Piece {
 public:
  using Two = std::array<ir::Output, 2>;
  using Three = std::array<ir::Output, 3>;
  virtual ~Piece() = default;
  /// Adds it to the builder's graph: as control flow, or written out.
  virtual Two emit(ir::Builder& b, const Three& in, bool written_out) const = 0;
};
using PiecePtr = std::unique_ptr<Piece>;

/// A nest of at most `depth` levels; `smooth` ones can be differentiated twice.
PiecePtr random_piece(Dice& dice, int depth, bool smooth);

struct ControlModel {
  ir::Graph graph;
  std::vector<ir::Output> fetches;
  std::vector<ir::NodeId> targets = {};
};

/// `piece` of three fed values ("x0" to "x2"), its gradients by them and, for `second`, theirs.
ControlModel make_control(const Piece& piece, bool written_out, bool second);

/// Every node asks for one of `devices`, in bodies too.
void ask_for_devices(ir::Graph* graph, const std::vector<std::string>& devices, Dice* dice);

/// Values for "x0" to "x2".
reference::Values control_feeds(Dice& dice);

}  // namespace sidereal::exec
