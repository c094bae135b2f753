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

template <int kRows, int kCols>
constexpr auto transposed(const TileMatrix<true, kRows, kCols>& of) {
  TileMatrix<false, kCols, kRows> out;
  for (int i = 0; i < kRows; ++i) {
    out.paired[i] = of.paired[i];
    for (int j = 0; j < kCols; ++j) out.at[j][i] = of.at[i][j];
  }
  return out;
}

/// The points at which polynomials are multiplied, but for infinity. Floats hold their powers exactly, and the error of
/// the products is a quarter of that with the usual points 0, 1, -1, 2, -2.
template <int kSide>
struct ToomCookPoints;
template <>
struct ToomCookPoints<3> {
  static constexpr double at[] = {1, -1};
};
template <>
struct ToomCookPoints<4> {
  static constexpr double at[] = {0, 1, -1};
};
template <>
struct ToomCookPoints<5> {
  static constexpr double at[] = {.5, -.5, 1, -1};
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

/// The same for sums whose inputs begin two apart, and three taps. The outer taps meet the even inputs only, like two taps
/// of stride 1: kOutputs + 1 multiplications. The middle one meets the odd inputs: kOutputs multiplications.
template <int kOutputs>
class StridedToomCook {
 public:
  static constexpr int side = 2 * kOutputs + 1;

 private:
  using OfOuter = ToomCook<kOutputs, 2>;
  using OfOuterFilters = ToomCook<2, kOutputs>;

  /// The rows of `outer`, whose columns lie kOuterStep apart, and one row for each odd input k, with a 1 in column
  /// kStep * k + kFirst.
  template <int kCols, int kStep, int kFirst, int kOuterStep, class Outer>
  static constexpr auto expanding(const Outer& outer) {
    TileMatrix<true, side, kCols> out;
    for (int i = 0; i < OfOuter::side; ++i) {
      out.paired[i] = outer.paired[i];
      for (int j = 0; j < Outer::cols; ++j) out.at[i][kOuterStep * j] = outer.at[i][j];
    }
    for (int k = 0; k < kOutputs; ++k) out.at[OfOuter::side + k][kStep * k + kFirst] = 1;
    return out;
  }

 public:
  static constexpr auto input = expanding<side, 2, 1, 2>(OfOuter::input);
  static constexpr auto filter = expanding<3, 0, 1, 2>(OfOuter::filter);
  static constexpr auto output_gradient = expanding<kOutputs, 1, 0, 1>(OfOuter::output_gradient);
  static constexpr auto output = transposed(output_gradient);
  static constexpr auto input_gradient = transposed(input);
  /// Of the gradient of the filters, which is as many sums of kOutputs products each, over the same points.
  struct OfFilters {
    static constexpr int side = StridedToomCook::side;
    static constexpr auto filter = expanding<kOutputs, 1, 0, 1>(OfOuterFilters::filter);
    static constexpr auto output = transposed(expanding<3, 0, 1, 2>(OfOuterFilters::output_gradient));
  };
};

/// The same for sums whose inputs begin one apart, of three taps, over two inputs with zeros before and after them:
/// w1 a + w2 b and w0 a + w1 b by three multiplications, w1 (a + b), (w2 - w1) b and (w0 - w1) a.
class PaddedToomCook {
 public:
  static constexpr int side = 3;
  static constexpr TileMatrix<true, side, 2> input = {{{1, 1}, {0, 1}, {1, 0}}};
  static constexpr TileMatrix<true, side, 3> filter = {{{0, 1, 0}, {0, -1, 1}, {1, -1, 0}}};
  static constexpr TileMatrix<true, side, 2> output_gradient = {{{1, 1}, {1, 0}, {0, 1}}};
  static constexpr auto output = transposed(output_gradient);
  static constexpr auto input_gradient = transposed(input);
  /// Of the gradient of the filters.
  struct OfFilters {
    static constexpr int side = PaddedToomCook::side;
    static constexpr auto filter = PaddedToomCook::output_gradient;
    static constexpr auto output = transposed(PaddedToomCook::filter);
  };
};

}  // namespace
}  // namespace trainrun::kernels
// NOLINTEND(modernize-avoid-c-arrays, readability-identifier-naming, readability-redundant-parentheses)
