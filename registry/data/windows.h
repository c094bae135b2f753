#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "registry/kinds/dataset.h"

namespace trainrun {

/// What the recipe says of the data set Windows.
struct Windows {
  Component<DatasetKind> dataset;
  int64_t length = 0;
  int64_t horizon = 1;
  int64_t stride = 1;
  std::optional<std::string> group;
  std::vector<std::string> known;
  std::optional<std::string> time;
  std::string gaps = "error";
  int64_t holdout = 0;
  std::optional<int64_t> origins;

  static void describe(Fields<Windows>& f) {
    f.required("dataset", &Windows::dataset).doc("rows in the order of time, such as a CSV table's");
    f.required("length", &Windows::length).at_least(1).unit("rows").doc("length of the past that the model sees");
    f.optional("horizon", &Windows::horizon).at_least(1).unit("rows").doc("length of the future that it is to predict");
    f.optional("stride", &Windows::stride)
        .at_least(1)
        .unit("rows")
        .doc("distance from the beginning of one window to that of the next");
    f.optional("group", &Windows::group)
        .doc(
            "a column whose equal values are one series, such as a shop: no window runs from one series into another; "
            "its rows need not follow each other. null: all rows are one series, or one for each data set of a Concat");
    f.optional("known", &Windows::known)
        .doc(
            "columns whose future is known beforehand, such as holidays: those of the features come as a field "
            "`known`, "
            "[N, horizon, K], others as known_NAME");
    f.optional("time", &Windows::time)
        .doc(
            "the column with the rows' times, dates or numbers: each series must be in their order, without missing "
            "steps");
    f.optional("gaps", &Windows::gaps)
        .one_of({"error", "split"})
        .doc(
            "what to do where steps of `time` are missing: stop with an error that names them, or split the series in "
            "two");
    f.optional("holdout", &Windows::holdout)
        .at_least(0)
        .unit("rows")
        .doc("the last rows of each series that no window reaches into, so that they can be evaluated on");
    f.optional("origins", &Windows::origins)
        .at_least(1)
        .doc(
            "use only this many windows of each series, `stride` apart, the last of them at its end: a backtest from "
            "that many origins. null: all windows, from the beginning");
  }
  void check(Checker& checker) const {
    if (gaps == "split" && !time) checker.fail("gaps", "needs time, the column that shows where steps are missing");
  }
  std::unique_ptr<Dataset> build(const DatasetInputs& inputs) const;
};

}  // namespace trainrun
