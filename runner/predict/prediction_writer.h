#pragma once

#include <nlohmann/json.hpp>

#include <memory>
#include <string>

#include "runner/predict/outcome.h"
#include "runner/predict/resumable_file.h"

namespace trainrun {

/// Writes rows of predictions.
class PredictionWriter {
 public:
  virtual ~PredictionWriter() = default;
  /// The rows of a batch: the same columns each time. Throws FileError, or Error where the format cannot hold them.
  virtual void write(const ResultColumns& columns) = 0;
  /// Has all rows on the disk, as far as `point`, so that they need not be made again.
  virtual void mark(const PredictionPoint& point) { static_cast<void>(point); }
  /// Where an earlier process was killed; else the beginning.
  virtual PredictionPoint begin() const { return {}; }
  virtual std::string note() const { return ""; }
  /// What a user should know of the rows, once all are written.
  virtual std::vector<std::string> notes() const { return {}; }
  virtual void finish() = 0;
};

/// The same columns, as a LineMaker reads them: their numbers lie one after another.
ResultColumns contiguous(const ResultColumns& columns);
/// Makes lines of rows of contiguous columns.
class LineMaker {
 public:
  virtual ~LineMaker() = default;
  /// The line of names, with its end; "": there is none.
  virtual std::string head(const ResultColumns& columns) = 0;
  /// Appends a row's line, with its end.
  virtual void append(std::string& text, const ResultColumns& columns, int64_t row) = 0;
  virtual std::vector<std::string> notes() const { return {}; }
};
/// Of CSV, in which lists of numbers are a column for each of them: "output[3]".
std::unique_ptr<LineMaker> csv_lines();
/// Of CoNLL: the lines of a sentence.
std::unique_ptr<LineMaker> conll_lines();

/// `format`: csv, jsonl, conll, parquet, npz. `path`: "": standard output, of which only lines can be made. `identity`: see ResumableFile.
std::unique_ptr<PredictionWriter> open_prediction_writer(const std::string& format, const std::string& path,
                                                         const nlohmann::json& identity);

std::unique_ptr<PredictionWriter> npz_writer(const std::string& path);
std::unique_ptr<PredictionWriter> parquet_writer(const std::string& path);

/// A number as short as it may be so that float32 reads it as the same again; an integer whole; true or false. Of
/// element `i` of a contiguous tensor. `not_finite`: what stands for NaN and infinities; null: nan, inf.
void append_number(std::string& text, const at::Tensor& numbers, int64_t i, const char* not_finite);

}  // namespace trainrun
