#pragma once

// The matrices of Winograd's convolutions. For sources named _simd.cpp (see README.md): all is in an unnamed namespace.
// NOLINTBEGIN(modernize-avoid-c-arrays, readability-identifier-naming, readability-redundant-parentheses): nothing of the standard library may be included there

namespace trainrun::kernels {
namespace {

/// A matrix that a tile is multiplied by from both sides. Points p and -p share their even and their odd terms, where
/// they are `paired`, the row (or column) i with i + 1. If it expands, row i has the even terms and row i + 1 the odd
/// ones, and the two results are their sum and difference. Else the same holds of columns and inputs.
template <bool kExpands, int kRows, int kCols>
struct TileMatrix {
  static constexpr bool expands = kExpands;
  static constexpr int rows = kRows;
  static constexpr int cols = kCols;
  float at[kRows][kCols] = {};
  bool paired[kExpands ? kRows : kCols] = {};
};

/// The points at which polynomials are multiplied, but for infinity. Floats hold their powers exactly, and the error of
/// the products is a quarter of that with the usual points 0, 1, -1, 2, -2.
template <int kSide>
struct ToomCookPoints;
template <>
struct ToomCookPoints<4> {
  static constexpr double at[] = {0, 1, -1};
};
template <>
struct ToomCookPoints<6> {
  static constexpr double at[] = {0, .75, -.75, 1.5, -1.5};
};
template <>
struct ToomCookPoints<7> {
  static constexpr double at[] = {.375, -.375, .875, -.875, 1.5, -1.5};
};

/// kOutputs sums of kTaps products each, in one dimension, by `side` multiplications.
/// Source: Lavin and Gray 2016, "Fast Algorithms for Convolutional Neural Networks"; the points are our own.
template <int kOutputs, int kTaps>
class ToomCook {
 public:
  static constexpr int side = kOutputs + kTaps - 1;

 private:
  template <int kCols>
  struct Dense {
    double at[side][kCols] = {};
  };
  static constexpr double point(int i) { return ToomCookPoints<side>::at[i]; }
  /// Makes the rows of p and -p alike.
  static constexpr double sign(int i) { return side % 2 != 0 && i % 2 != 0 ? -1 : 1; }

  template <bool kExpands, int kCols>
  static constexpr auto matrix(const Dense<kCols>& dense) {
    TileMatrix<kExpands, kExpands ? side : kCols, kExpands ? kCols : side> out;
    for (int i = side % 2 == 0 ? 1 : 0; i + 2 < side; i += 2) out.paired[i] = true;
    for (int i = 0; i < side; ++i) {
      const bool is_second = i > 0 && out.paired[i - 1];
      for (int j = 0; j < kCols; ++j) {
        const bool is_zero = out.paired[i] ? j % 2 != 0 : is_second && j % 2 == 0;
        const float value = is_zero ? 0 : static_cast<float>(dense.at[i - (is_second ? 1 : 0)][j]);
        if constexpr (kExpands) {
          out.at[i][j] = value;
        } else {
          out.at[j][i] = value;
        }
      }
    }
    return out;
  }

  /// Row i: the polynomial whose roots are all other points.
  static constexpr Dense<side> polynomials() {
    Dense<side> rows;
    for (int i = 0; i < side; ++i) {
      double poly[side + 1] = {sign(i)};
      for (int k = 0, degree = 0; k < side - 1; ++k) {
        if (k == i) continue;
        for (int j = ++degree; j >= 0; --j) poly[j] = (j > 0 ? poly[j - 1] : 0) - point(k) * poly[j];
      }
      for (int j = 0; j < side; ++j) rows.at[i][j] = poly[j];
    }
    return rows;
  }

  template <int kCols>
  static constexpr Dense<kCols> powers(bool of_filter) {
    Dense<kCols> rows;
    for (int i = 0; i < side - 1; ++i) {
      double x = of_filter ? sign(i) : 1;
      for (int k = 0; k < side - 1; ++k) x /= of_filter && k != i ? point(i) - point(k) : 1;
      for (int j = 0; j < kCols; ++j, x *= point(i)) rows.at[i][j] = x;
    }
    rows.at[side - 1][kCols - 1] = 1;
    return rows;
  }

 public:
  static constexpr auto input = matrix<true>(polynomials());                      // side x side
  static constexpr auto filter = matrix<true>(powers<kTaps>(true));               // side x kTaps
  static constexpr auto output = matrix<false>(powers<kOutputs>(false));          // kOutputs x side
  static constexpr auto output_gradient = matrix<true>(powers<kOutputs>(false));  // output transposed
  static constexpr auto input_gradient = matrix<false>(polynomials());            // input transposed
};

}  // namespace
}  // namespace trainrun::kernels
// NOLINTEND(modernize-avoid-c-arrays, readability-identifier-naming, readability-redundant-parentheses)
