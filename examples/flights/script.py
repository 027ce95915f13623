# ruff: noqa: ANN001, ANN201, D100, D103, F704, F821, ISC004, PLE1142
# Asked when and from which of New York's airports to fly in December, and how weather delays.

import asyncio

MONTH = 12

# The tables are large: they stay outside, and travel on as they are.
flights, weather, airports = await asyncio.gather(
    load_table(name="flights", month=MONTH),
    load_table(name="weather", month=MONTH),
    load_table(name="airports"),
)

hours, skies, places = await asyncio.gather(
    query(
        sql="""
            SELECT origin, hour, count(*) AS flights, avg(dep_delay) AS minutes
            FROM flights WHERE dep_delay IS NOT NULL
            GROUP BY origin, hour HAVING flights >= 30 ORDER BY origin, hour
        """,
        tables={"flights": flights},
    ),
    query(
        sql="""
            SELECT CASE WHEN visib < 2 THEN 'low visibility' WHEN precip > 0 THEN 'rain or snow'
                        WHEN wind_speed > 20 THEN 'wind' ELSE 'fair' END AS sky,
                   count(*) AS flights, count(dep_delay) AS flown,
                   avg(dep_delay) AS minutes, avg(dep_delay IS NULL) AS cancelled
            FROM flights JOIN weather USING (origin, month, day, hour)
            GROUP BY sky ORDER BY minutes
        """,
        tables={"flights": flights, "weather": weather},
    ),
    query(
        sql="""
            SELECT dest, name, lat, lon, count(*) AS flights, avg(arr_delay) AS minutes
            FROM flights JOIN airports ON faa = dest WHERE arr_delay IS NOT NULL
            GROUP BY dest HAVING flights >= 100 ORDER BY minutes DESC LIMIT 10
        """,
        tables={"flights": flights, "airports": airports},
    ),
)


def delays_of(origin):
    return {row["hour"]: row["minutes"] for row in hours if row["origin"] == origin}


by_origin = {origin: delays_of(origin) for origin in sorted({row["origin"] for row in hours})}
shared = [hour for hour in by_origin["JFK"] if all(hour in by for by in by_origin.values())]
best = min(hours, key=lambda row: row["minutes"])
worst = max(hours, key=lambda row: row["minutes"])

by_sky = {row["sky"]: row for row in skies}
# The weather table ends before the month does: not every flight has its weather.
known = sum(row["flights"] for row in skies)
fair = by_sky["fair"]["minutes"]
later = sum(row["flown"] * (row["minutes"] - fair) for row in skies) / 60

late = [
    {
        "airport": place["dest"],
        "name": place["name"],
        "flights": place["flights"],
        "minutes late": round(place["minutes"], 1),
    }
    for place in places
]

chart, report = await asyncio.gather(
    draw_chart(
        title="Leaving New York in December",
        panels=[
            {
                "kind": "line",
                "title": "Delay by hour",
                "x": shared,
                "series": {
                    origin: [delays[hour] for hour in shared]
                    for origin, delays in by_origin.items()
                },
                "ylabel": "minutes",
            },
            {
                "kind": "bars",
                "title": "Delay by weather",
                "x": [row["sky"] for row in skies],
                "series": {"minutes": [row["minutes"] for row in skies]},
                "ylabel": "minutes",
            },
            {
                "kind": "map",
                "title": "The ten latest destinations",
                "x": [place["lon"] for place in places],
                "series": {"airports": [place["lat"] for place in places]},
                "names": [place["dest"] for place in places],
                "ylabel": "latitude",
            },
        ],
    ),
    write_report(
        title="Leaving New York in December",
        paragraphs=[
            f"Fly from {best['origin']} at {best['hour']:.0f}: {best['minutes']:.1f} minutes late"
            f" on average. The worst is {worst['origin']} at {worst['hour']:.0f} with"
            f" {worst['minutes']:.1f} minutes.",
            f"Of {known} flights the weather is known. Those not in fair weather left"
            f" {later:.0f} hours later in all than fair ones do on average; in low visibility"
            f" {by_sky['low visibility']['cancelled'] * 100:.0f} % never left.",
        ],
        table=late,
    ),
)

try:
    await send_email(
        to="operations@example.org",
        subject="Leaving New York in December",
        body="The report and its chart are attached.",
        attachments={"report.md": report, "chart.png": chart["files"][0]["artifact"]},
    )
    mail = "sent"
except PermissionError as error:
    mail = f"not sent: {error}"

{
    "flights_with_weather": known,
    "best": f"{best['origin']} at {best['hour']:.0f}",
    "worst": f"{worst['origin']} at {worst['hour']:.0f}",
    "hours_later_than_in_fair_weather": round(later),
    "latest": [place["airport"] for place in late],
    "chart": chart["files"][0]["path"],
    "mail": mail,
}
