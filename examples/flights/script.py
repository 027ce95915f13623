# ruff: noqa: ANN001, ANN201, B905, D100, D103, F704, F821, ISC004, PLE1142, RUF007
# Asked to plan the flight from San Francisco to Seattle.

import asyncio
import math

EARTH_KM = 6371.0


def radians_of(place):
    return math.radians(place["latitude"]), math.radians(place["longitude"])


def distance_km(a, b):
    (lat_a, lon_a), (lat_b, lon_b) = radians_of(a), radians_of(b)
    half = math.sin((lat_b - lat_a) / 2) ** 2
    half += math.cos(lat_a) * math.cos(lat_b) * math.sin((lon_b - lon_a) / 2) ** 2
    return 2 * EARTH_KM * math.asin(math.sqrt(half))


# The tables are large: they stay outside, and travel on as they are.
airports, seattle, san_francisco = await asyncio.gather(
    load_table(name="airports"),
    load_table(name="seattle-temps"),
    load_table(name="sf-temps"),
)

fields, months = await asyncio.gather(
    query(
        sql="""
            SELECT iata, name, state, latitude, longitude FROM airports
            WHERE latitude BETWEEN 37.6 AND 47.5 AND abs(longitude + 122.35) < 0.25
              AND length(iata) = 3 AND iata NOT GLOB '*[0-9]*'
            ORDER BY latitude
        """,
        tables={"airports": airports},
    ),
    query(
        sql="""
            SELECT substr(a.date, 6, 2) AS month, round(avg(a.temp), 1) AS seattle,
                   round(avg(b.temp), 1) AS san_francisco, sum(a.temp <= 40) AS cold_hours
            FROM seattle a JOIN san_francisco b ON substr(b.date, 1, 16) = a.date
            GROUP BY month ORDER BY month
        """,
        tables={"seattle": seattle, "san_francisco": san_francisco},
    ),
)

by_code = {field["iata"]: field for field in fields}
start, end = by_code["SFO"], by_code["SEA"]
total = distance_km(start, end)

# An airfield lies on the way if landing there makes the flight less than two per cent longer.
on_the_way = []
for field in fields:
    detour = distance_km(start, field) + distance_km(field, end) - total
    if field["iata"] not in ("SFO", "SEA") and detour < 0.02 * total:
        on_the_way.append(
            {
                "airfield": field["iata"],
                "name": field["name"],
                "km from SFO": round(distance_km(start, field)),
                "detour km": round(detour, 1),
            }
        )

on_the_way.sort(key=lambda stop: stop["km from SFO"])

stops = sorted([0, round(total)] + [stop["km from SFO"] for stop in on_the_way])
gap, gap_from = max((b - a, a) for a, b in zip(stops, stops[1:]))
cold = [month for month in months if month["cold_hours"]]
cold_hours = sum(month["cold_hours"] for month in cold)

chart, report = await asyncio.gather(
    draw_chart(
        title="San Francisco to Seattle",
        panels=[
            {
                "kind": "map",
                "title": "Airfields on the way",
                "x": [field["longitude"] for field in fields],
                "series": {"airfields": [field["latitude"] for field in fields]},
                "names": [field["iata"] for field in fields],
                "ylabel": "latitude",
            },
            {
                "kind": "bars",
                "title": "Mean temperature by month",
                "x": [month["month"] for month in months],
                "series": {
                    "Seattle": [month["seattle"] for month in months],
                    "San Francisco": [month["san_francisco"] for month in months],
                },
                "ylabel": "degrees Fahrenheit",
            },
        ],
    ),
    write_report(
        title="San Francisco to Seattle",
        paragraphs=[
            f"The way is {total:.0f} km. {len(on_the_way)} airfields lie on it; the longest"
            f" stretch without one is {gap} km, {gap_from} km from San Francisco.",
            f"Seattle had {cold_hours} hours of the year at or below 40 °F, in the months "
            + ", ".join(month["month"] for month in cold)
            + ".",
        ],
        table=on_the_way,
    ),
)

try:
    await send_email(
        to="operations@example.org",
        subject="San Francisco to Seattle",
        body="The report and its chart are attached.",
        attachments={"report.md": report, "chart.png": chart["files"][0]["artifact"]},
    )
    mail = "sent"
except PermissionError as error:
    mail = f"not sent: {error}"

{
    "distance_km": round(total),
    "airfields": [stop["airfield"] for stop in on_the_way],
    "longest_stretch_km": gap,
    "cold_hours": cold_hours,
    "chart": chart["files"][0]["path"],
    "mail": mail,
}
