/* The sources of a forecast's rates, part by part, and the error that they let expect. */
#ifndef SHARDC_FORECAST_SOURCE_H
#define SHARDC_FORECAST_SOURCE_H
#include "forecast.h"

void find_sources(Forecast *forecast, const Module *m);
#endif
