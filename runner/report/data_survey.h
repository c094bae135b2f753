#pragma once

#include <string>

#include "runner/model/recipe_loader.h"
#include "runner/report/surveyed_data.h"

namespace trainrun {

/// Opens the recipe's data and makes the first batches of the first epoch. Throws what making a batch throws.
DataSurvey survey_data(const LoadedRecipe& loaded, const DataSurveyOptions& options);

/// One HTML file that needs no other, pictures included.
std::string to_html(const DataSurvey& survey);
/// Tables and warnings, within 100 columns; `with_pictures`: also the first samples, pictures roughly by colours of the
/// terminal.
std::string to_text(const DataSurvey& survey, bool with_pictures);

/// The picture of an input [C, H, W], [height, width, 1 or 3] uint8: of numbers in [0, 1] as they are, of others
/// stretched from the least to the largest of a channel; undefined where it is no picture.
at::Tensor picture_of(const at::Tensor& input);

}  // namespace trainrun
