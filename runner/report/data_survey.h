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

}  // namespace trainrun
