namespace sidereal {
extern const int kPchAnchor;
const int kPchAnchor = 0;
}  // namespace sidereal
